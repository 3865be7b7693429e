// Cuts a sparse vector into the segments of its chunks, and feeds them into the stream.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "proto/sparse/sparse_tensor.hpp"
#include "proto/sparse/stripes.hpp"
#include "proto/stream/source.hpp"

namespace sparsewire::proto {

// Collects the elements, or rows, of one chunk and encodes them in the cheapest format.
class SegmentBuilder {
 public:
  // Starts a chunk. `unit` is the elements of one local index: 1, or a block. At most `capacity`
  // indices will come, and about as many as `expected`.
  void start(const BlockLayout& layout, std::size_t unit, std::size_t capacity,
             std::size_t expected);

  // Adds ascending indices and their values. `shift` makes the indices local.
  template <typename Index>
  void add(const Index* indices, std::size_t count, Index shift, const std::byte* values);

  // The segment of what was collected; none if there was nothing.
  std::optional<Segment> encode();

 private:
  Segment encode_bits();
  Segment encode_dense() const;
  void mark_locals();
  Segment encode_coordinates() const;
  void reserve(std::size_t capacity);

  BlockLayout layout_{};
  std::size_t value_bytes_ = 0;
  std::size_t places_ = 0;  // places for indices in the chunk
  std::size_t head_ = 0;    // bytes of a bitmap over them
  bool by_bits_ = false;    // a bitmap and the values after it are written as they come
  std::size_t count_ = 0;
  wire::ElementBitmap bits_;
  std::vector<std::uint16_t> locals_;
  std::shared_ptr<std::byte[]> memory_;  // room for the bitmap, then the values
  std::size_t room_ = 0;                 // bytes of it
};

class Splitter {
 public:
  Splitter(const SparseTensor& tensor, const ChunkGrid& grid);

  using Segments = std::vector<std::optional<Segment>>;

  // The next row of chunks (one per column, from chunk row * columns on) of which the vector names
  // anything, or none. After split(row) it is a later one.
  std::optional<std::uint64_t> next_row() const;

  // Goes on with index number `cursor`.
  void seek(std::uint64_t cursor) { cursor_ = cursor; }

  // The segments of the row.
  Segments split(std::uint64_t row);

 private:
  // The segment of the row's only chunk.
  std::optional<Segment> take_all(std::uint64_t first, std::uint64_t last, std::uint64_t row);
  // Gives the columns their stripes.
  template <typename Index>
  void deal(const Index* indices, std::uint64_t first, std::uint64_t last, std::uint64_t row);
  template <typename Index>
  std::uint64_t end_of_stripe(const Index* indices, std::uint64_t first, std::uint64_t last,
                              Index begin) const;

  SparseTensor tensor_;
  ChunkGrid grid_;
  Stripes stripes_;
  std::uint64_t groups_;      // of stripes, in one row of chunks
  std::uint64_t width_;       // of a stripe, in indices: 1, or a power of two
  std::uint64_t positions_;   // that one row of chunks covers
  std::uint64_t cursor_ = 0;  // indices before it are in rows that were split
  std::vector<SegmentBuilder> builders_;
};

// OmniReduce's key-value form (Algorithm 3 of its paper), with look-ahead from one chunk that holds
// indices to the next.
class SparseSource final : public Source {
 public:
  // `is_mine` says which chunks will be asked for: those of one lane.
  SparseSource(const SparseTensor& tensor, const ChunkGrid& grid,
               std::function<bool(std::uint64_t)> is_mine)
      : columns_(grid.columns), splitter_(tensor, grid), is_mine_(std::move(is_mine)) {}

  // The streams of an operation advance at different speeds, but a row of chunks is split at once.
  // Segments that slower streams have not asked for yet are kept.
  std::optional<Segment> segment(std::uint64_t chunk) override {
    const std::uint64_t row = chunk / columns_;
    for (auto next = splitter_.next_row(); next && *next <= row; next = splitter_.next_row()) {
      auto segments = splitter_.split(*next);
      for (std::uint64_t column = 0; column < columns_; ++column) {
        const std::uint64_t at = *next * columns_ + column;
        if (segments[column] && is_mine_(at)) kept_.emplace(at, *std::move(segments[column]));
      }
    }
    auto kept = kept_.extract(chunk);
    if (kept.empty()) return {};
    return std::move(kept.mapped());
  }

 private:
  std::uint64_t columns_;
  Splitter splitter_;
  std::function<bool(std::uint64_t)> is_mine_;
  std::map<std::uint64_t, Segment> kept_;
};

}  // namespace sparsewire::proto
