// Walks over the indices stripe by stripe; within a stripe they only need a constant added.
#include "proto/sparse/splitter.hpp"

#include <bit>

namespace sparsewire::proto {

Splitter::Splitter(const SparseTensor& tensor, const ChunkGrid& grid)
    : tensor_(tensor),
      grid_(grid),
      stripes_(grid),
      groups_(grid.chunk_elements / grid.block),
      positions_(grid.chunk_elements * grid.columns / tensor.descriptor.row),
      builders_(grid.columns) {}

std::optional<std::uint64_t> Splitter::next_row() const {
  if (cursor_ == tensor_.named) return {};
  const auto index = with_indices(
      tensor_, [&](const auto* indices) { return static_cast<std::uint64_t>(indices[cursor_]); });
  return (index - tensor_.base) / positions_;
}

Splitter::Segments Splitter::split(std::uint64_t row) {
  const std::uint64_t first = cursor_;
  const std::uint64_t last = lower_bound(tensor_, first, (row + 1) * positions_);
  cursor_ = last;
  Segments segments(grid_.columns);
  const std::size_t unit = tensor_.descriptor.row;
  if (grid_.columns == 1) {
    segments.front() = take_all(first, last, row);
    if (segments.front()) return segments;
  }
  for (std::uint64_t column = 0; column < grid_.columns; ++column) {
    builders_[column].start(grid_.layout(row * grid_.columns + column), unit, last - first,
                            (last - first) / grid_.columns);
  }
  with_indices(tensor_, [&](const auto* indices) {
    if (unit != 1) return deal_rows(indices, first, last, row);
    grid_.columns == 1 ? mark_all(indices, first, last, row) : deal(indices, first, last, row);
  });
  for (std::uint64_t column = 0; column < grid_.columns; ++column) {
    segments[column] = builders_[column].encode();
  }
  return segments;
}

// One column has all of the row, which makes some segments simple.
std::optional<Segment> Splitter::take_all(std::uint64_t first, std::uint64_t last,
                                          std::uint64_t row) const {
  const BlockLayout layout = grid_.layout(row);
  const std::uint64_t count = last - first;
  const std::byte* const values = tensor_.values + first * tensor_.row_bytes();
  if (count * tensor_.descriptor.row == layout.count) {
    // All of the chunk is named, so its values are a dense segment as they lie there.
    return Segment{wire::Format::dense, Codec::raw, Bytes::borrowed({values, layout.bytes()})};
  }
  const bool are_few = 2 * count <= wire::positions_bytes(wire::Format::bitmap, layout, count);
  if (count == 0 || tensor_.descriptor.row != 1 || !are_few) return {};
  return with_indices(tensor_, [&](const auto* indices) {
    using Index = std::remove_cvref_t<decltype(*indices)>;
    const auto shift = static_cast<Index>(0 - (row * positions_ + tensor_.base));
    return coordinates_of(indices + first, count, shift, values, layout.element_size);
  });
}

// A bitmap over one column takes all of the row at once.
template <typename Index>
void Splitter::mark_all(const Index* indices, std::uint64_t first, std::uint64_t last,
                        std::uint64_t row) {
  if (first == last) return;
  builders_.front().add(indices + first, last - first,
                        static_cast<Index>(0 - (row * positions_ + tensor_.base)),
                        tensor_.values + first * grid_.element_size);
}

template <typename Index>
void Splitter::deal(const Index* indices, std::uint64_t first, std::uint64_t last,
                    std::uint64_t row) {
  const int shift = std::countr_zero(grid_.block);  // Blocks of elements are powers of two.
  const auto base = static_cast<Index>(tensor_.base);
  while (first < last) {
    const std::uint64_t stripe = static_cast<std::uint64_t>(indices[first] - base) >> shift;
    const auto begin = static_cast<Index>((stripe << shift) + tensor_.base);
    const std::uint64_t behind = end_of_stripe(indices, first, last, begin);
    const std::uint64_t group = stripes_.group(stripe);
    const auto local = static_cast<Index>((group - row * groups_) << shift);
    builders_[stripes_.column(stripe, group)].add(indices + first, behind - first,
                                                  static_cast<Index>(local - begin),
                                                  tensor_.values + first * grid_.element_size);
    first = behind;
  }
}

// The first index that is not in the stripe that begins at `begin`.
template <typename Index>
std::uint64_t Splitter::end_of_stripe(const Index* indices, std::uint64_t first, std::uint64_t last,
                                      Index begin) const {
  const auto length = static_cast<Index>(grid_.block);
  // A full stripe shows in its last index.
  const std::uint64_t full = first + grid_.block;
  if (full <= last && indices[full - 1] - begin < length) return full;
  std::uint64_t behind = first + 1;
  while (behind < last && indices[behind] - begin < length) ++behind;
  return behind;
}

// Each index is a stripe of its own here.
template <typename Index>
void Splitter::deal_rows(const Index* indices, std::uint64_t first, std::uint64_t last,
                         std::uint64_t row) {
  const std::size_t size = tensor_.row_bytes();
  for (; first < last; ++first) {
    const std::uint64_t stripe = static_cast<std::uint64_t>(indices[first]) - tensor_.base;
    const std::uint64_t group = stripes_.group(stripe);
    const auto local = static_cast<Index>(group - row * groups_);
    builders_[stripes_.column(stripe, group)].add(indices + first, 1,
                                                  static_cast<Index>(local - indices[first]),
                                                  tensor_.values + first * size);
  }
}

}  // namespace sparsewire::proto
