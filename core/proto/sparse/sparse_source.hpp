// Feeds a sparse vector into a stream: OmniReduce's key-value form (Algorithm 3 of its paper), with
// look-ahead from one chunk that holds indices to the next.
#pragma once

#include <functional>
#include <map>

#include "proto/sparse/splitter.hpp"
#include "proto/stream/source.hpp"

namespace sparsewire::proto {

class SparseSource final : public Source {
 public:
  // `is_mine` tells which chunks will be asked for: those of one lane.
  SparseSource(const SparseTensor& tensor, const ChunkGrid& grid,
               std::function<bool(std::uint64_t)> is_mine)
      : columns_(grid.columns), splitter_(tensor, grid), is_mine_(std::move(is_mine)) {}

  // The streams of an operation advance at different speeds, but a row of chunks is split at once;
  // what the slower ones have not asked for yet is kept.
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
