// Lists what a chunk that is no stripe names, right where ascending indices and their values go.
#pragma once

#include "proto/stream/contribution.hpp"

namespace sparsewire::proto {

// Where ascending indices and their values are written.
template <typename Index>
struct SparseCursor {
  Index* indices;
  std::byte* values;
};

// Appends what the chunk names, as list_named() does; `base` is the index of its first element, or
// row. Index is std::int32_t or std::int64_t; `row` is in elements.
template <typename Index>
void list_chunk(Contribution contribution, const BlockLayout& layout, DType dtype,
                std::uint32_t row, Index base, SparseCursor<Index>& out);

// Appends `count` indices: `base` plus a number of 16 bits each.
template <typename Index>
void append_locals(const std::byte* locals, std::size_t count, Index base,
                   SparseCursor<Index>& out);

// Appends their values.
template <typename Index>
void append_values(std::span<const std::byte> values, SparseCursor<Index>& out) {
  std::memcpy(out.values, values.data(), values.size());
  out.values += values.size();
}

}  // namespace sparsewire::proto
