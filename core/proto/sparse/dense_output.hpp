// Writes the results of a sparse operation into a dense array as they come.
#pragma once

#include <vector>

#include "proto/sparse/packed_part.hpp"
#include "proto/sparse/stripes.hpp"
#include "proto/stream/contribution.hpp"

namespace sparsewire::proto {

class DenseOutput final : public PartSink {
 public:
  // `out` has room for the descriptor's count; its content does not matter.
  DenseOutput(const wire::Descriptor& descriptor, const ChunkGrid& grid, std::byte* out);

  std::byte* place(std::uint64_t chunk, std::size_t size) override;
  // May be called by several lanes at once, for different chunks.
  Status write(std::uint64_t chunk, const Segment& segment) override;
  Status write_packed(const wire::Piece& piece, const ChunkRange& range) override;

  // Fills chunks that no result named with zeros; called after the end of the operation.
  void finish();

 private:
  // Calls visit(from, to, bytes) for every stripe of the chunk: its place in the chunk and in the
  // output, both in bytes. Parts of the grid beyond the end of the vector are left out.
  template <typename Visit>
  void for_each_stripe(std::uint64_t chunk, Visit&& visit) const;

  std::uint64_t bytes_;  // of the output
  ChunkGrid grid_;
  Stripes stripes_;
  std::byte* out_;
  std::vector<std::uint8_t> is_written_;  // per chunk; bytes, because lanes share no bits
};

}  // namespace sparsewire::proto
