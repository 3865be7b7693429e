// Adds up what ranks hold of one part of a sparse collective: all of it packed, or chunk by chunk.
#pragma once

#include <vector>

#include "proto/sparse/packed_part.hpp"
#include "proto/stream/reduce.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

// What one rank holds of a part.
struct Held {
  Rank rank;
  std::vector<wire::Piece> pieces;
};

class PartAdder {
 public:
  // Where sums are partial, all but the last addition of a part are sums of `partial_dtype`, which
  // is the descriptor's own type otherwise.
  PartAdder(const wire::Descriptor& descriptor, bool has_partial_sums, DType partial_dtype,
            Rank world_size, const Costs& costs)
      : descriptor_(descriptor),
        has_partial_sums_(has_partial_sums),
        partial_dtype_(partial_dtype),
        world_size_(world_size),
        costs_(costs) {}

  // The sum in the order given. `grid` has the elements as they are before; `completes` where
  // nothing is missing from the sum. An error where a piece is not what its format says.
  Result<std::vector<wire::Piece>> add(std::vector<Held> all, const ChunkGrid& grid,
                                       const ChunkRange& range, bool completes);

 private:
  Result<std::vector<wire::Piece>> add_packed_all(const std::vector<Held>& all,
                                                  const ChunkGrid& grid, const ChunkRange& range,
                                                  bool completes);
  Result<std::vector<wire::Piece>> add_by_chunk(std::vector<Held> all, const ChunkGrid& grid,
                                                const ChunkRange& range, bool completes);
  wire::Piece add_chunk(std::uint64_t chunk, const BlockLayout& layout,
                        const std::vector<Contribution>& contributions, bool completes);
  Segment finished_sum(const Segment& sum, const BlockLayout& layout) const;

  wire::Descriptor descriptor_;
  bool has_partial_sums_;
  DType partial_dtype_;
  Rank world_size_;
  Costs costs_;
  Scratch scratch_;
};

}  // namespace sparsewire::proto
