// What one result names, as a list: the form in which a sparse vector takes it over.
#pragma once

#include <vector>

#include "proto/stream/contribution.hpp"

namespace sparsewire::proto {

struct Named {
  std::vector<std::uint16_t> locals;  // elements of the chunk, or rows, ascending
  const std::byte* values = nullptr;  // one element, or row, for each
  Contribution memory;                // keeps the values in place
};

// Where the format names more than it must, only what is not zero is taken. `row` is in elements.
Named list_named(Contribution contribution, const BlockLayout& layout, DType dtype,
                 std::uint32_t row);

// The elements of a chunk that are not zero, of a segment that may name more.
struct Nonzeros {
  wire::ElementBitmap elements{};
  std::size_t count = 0;
  const std::byte* values = nullptr;    // of all the chunk's elements
  std::shared_ptr<std::byte[]> memory;  // keeps them in place, unless they lie in the segment
};
Nonzeros find_nonzeros(const Contribution& contribution, const BlockLayout& layout, DType dtype);

// Writes the chunk's every element to `target`.
void write_chunk(const Contribution& contribution, const BlockLayout& layout, std::byte* target);

}  // namespace sparsewire::proto
