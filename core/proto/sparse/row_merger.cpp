// Merges columns stripe by stripe; a stripe holds few elements, so its copies are done by hand.
#include "proto/sparse/row_merger.hpp"

#include <cstring>

namespace sparsewire::proto {

template <typename Index>
RowMerger<Index>::RowMerger(std::vector<Named> columns, const ChunkGrid& grid, std::uint32_t row)
    : columns_(std::move(columns)),
      cursors_(columns_.size()),
      grid_(grid),
      stripes_(grid),
      value_bytes_(row * grid.element_size),
      width_(static_cast<Index>(grid.block / row)) {}

template <typename Index>
void RowMerger<Index>::merge(std::uint64_t number, SparseCursor<Index>& out) {
  if (value_bytes_ == 4) return merge_sized<4>(number, out);
  if (value_bytes_ == 8) return merge_sized<8>(number, out);
  merge_sized<0>(number, out);
}

template <typename Index>
template <std::size_t size>
void RowMerger<Index>::merge_sized(std::uint64_t number, SparseCursor<Index>& out) {
  const std::uint64_t groups_per_row = grid_.chunk_elements / grid_.block;
  const std::uint64_t groups = grid_.layout(number * grid_.columns).blocks();
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t turn = stripes_.turn(number * groups_per_row + group);
    const Index local = static_cast<Index>(group) * width_;
    const std::uint64_t first = (number * groups_per_row + group) * grid_.columns;
    for (std::uint64_t i = 0; i < grid_.columns; ++i) {
      append<size>(stripes_.wrapped(i + turn), static_cast<std::size_t>(local + width_),
                   static_cast<Index>(first + i) * width_ - local, out);
    }
  }
}

template <typename Index>
template <std::size_t size>
void RowMerger<Index>::append(std::size_t column, std::size_t end, Index shift,
                              SparseCursor<Index>& out) {
  const Named& named = columns_[column];
  const std::size_t bytes = size != 0 ? size : value_bytes_;
  const std::size_t count = named.locals.size();
  const std::uint16_t* const locals = named.locals.data();
  std::size_t cursor = cursors_[column];
  const std::byte* from = named.values + cursor * bytes;
  Index* indices = out.indices;
  std::byte* values = out.values;
  for (; cursor < count && locals[cursor] < end; ++cursor) {
    *indices++ = static_cast<Index>(locals[cursor]) + shift;
    std::memcpy(values, from, bytes);
    values += bytes;
    from += bytes;
  }
  cursors_[column] = cursor;
  out = {indices, values};
}

template class RowMerger<std::int32_t>;
template class RowMerger<std::int64_t>;

}  // namespace sparsewire::proto
