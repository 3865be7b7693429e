// Merges columns stripe by stripe; a stripe holds few elements, so its copies are done by hand.
#include "proto/sparse/row_merger.hpp"

#include <cstring>

namespace sparsewire::proto {

RowMerger::RowMerger(std::vector<Named> columns, const ChunkGrid& grid, std::uint32_t row)
    : columns_(std::move(columns)),
      cursors_(columns_.size()),
      grid_(grid),
      stripes_(grid),
      value_bytes_(row * grid.element_size),
      width_(static_cast<std::int64_t>(grid.block / row)) {}

void RowMerger::merge(std::uint64_t number, SparseCursor& out) {
  if (value_bytes_ == 4) return merge_sized<4>(number, out);
  if (value_bytes_ == 8) return merge_sized<8>(number, out);
  merge_sized<0>(number, out);
}

template <std::size_t size>
void RowMerger::merge_sized(std::uint64_t number, SparseCursor& out) {
  const std::uint64_t groups_per_row = grid_.chunk_elements / grid_.block;
  if (grid_.columns == 1) {
    const auto begin = static_cast<std::int64_t>(number * groups_per_row) * width_;
    return append<size>(0, SIZE_MAX, begin, out);
  }
  const std::uint64_t groups = grid_.layout(number * grid_.columns).blocks();
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t turn = stripes_.turn(number * groups_per_row + group);
    const std::int64_t local = static_cast<std::int64_t>(group) * width_;
    const std::uint64_t first = (number * groups_per_row + group) * grid_.columns;
    for (std::uint64_t i = 0; i < grid_.columns; ++i) {
      append<size>(stripes_.wrapped(i + turn), static_cast<std::size_t>(local + width_),
                   static_cast<std::int64_t>(first + i) * width_ - local, out);
    }
  }
}

template <std::size_t size>
void RowMerger::append(std::size_t column, std::size_t end, std::int64_t shift, SparseCursor& out) {
  const Named& named = columns_[column];
  const std::size_t bytes = size != 0 ? size : value_bytes_;
  const std::size_t count = named.locals.size();
  const std::uint16_t* const locals = named.locals.data();
  std::size_t cursor = cursors_[column];
  const std::byte* from = named.values + cursor * bytes;
  std::int64_t* indices = out.indices;
  std::byte* values = out.values;
  for (; cursor < count && locals[cursor] < end; ++cursor) {
    *indices++ = locals[cursor] + shift;
    std::memcpy(values, from, bytes);
    values += bytes;
    from += bytes;
  }
  cursors_[column] = cursor;
  out = {indices, values};
}

}  // namespace sparsewire::proto
