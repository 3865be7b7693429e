// Splits rows of chunks as they are asked for.
#include "proto/sparse/sparse_source.hpp"

namespace sparsewire::proto {

std::optional<Segment> SparseSource::segment(std::uint64_t chunk) {
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

}  // namespace sparsewire::proto
