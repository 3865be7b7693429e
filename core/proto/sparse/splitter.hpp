// Cuts a sparse vector into the segments of its chunks.
#pragma once

#include <optional>
#include <vector>

#include "proto/sparse/segment_builder.hpp"
#include "proto/sparse/sparse_tensor.hpp"
#include "proto/sparse/stripes.hpp"

namespace sparsewire::proto {

class Splitter {
 public:
  Splitter(const SparseTensor& tensor, const ChunkGrid& grid);

  using Segments = std::vector<std::optional<Segment>>;

  // The next row of chunks, a column each, that the vector names anything of, or none: chunks
  // row * columns and so on. After split(row) it is a later one.
  std::optional<std::uint64_t> next_row() const;

  // Goes on with index number `cursor`.
  void seek(std::uint64_t cursor) { cursor_ = cursor; }

  // The segments of that row.
  Segments split(std::uint64_t row);

 private:
  // The segment of the row's only chunk, where it is dense or a few coordinates, or nothing.
  std::optional<Segment> take_all(std::uint64_t first, std::uint64_t last, std::uint64_t row) const;
  template <typename Index>
  void mark_all(const Index* indices, std::uint64_t first, std::uint64_t last, std::uint64_t row);
  template <typename Index>
  void deal(const Index* indices, std::uint64_t first, std::uint64_t last, std::uint64_t row);
  template <typename Index>
  std::uint64_t end_of_stripe(const Index* indices, std::uint64_t first, std::uint64_t last,
                              Index begin) const;
  template <typename Index>
  void deal_rows(const Index* indices, std::uint64_t first, std::uint64_t last, std::uint64_t row);

  SparseTensor tensor_;
  ChunkGrid grid_;
  Stripes stripes_;
  std::uint64_t groups_;      // of stripes, in one row of chunks
  std::uint64_t positions_;   // that one row of chunks covers
  std::uint64_t cursor_ = 0;  // indices before it are behind the last row
  std::vector<SegmentBuilder> builders_;
};

}  // namespace sparsewire::proto
