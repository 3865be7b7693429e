// Infinities and NaN in fixed point, which has no integer for them: they cross the wire first, as
// marks that add up like integers, and the finite values of their block follow.
#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace sparsewire::proto {

// All functions here take `count` values of `dtype`: float32, float16 or bfloat16; marks are int32
// of the machine's order. No pointer needs to be aligned.

// Writes the mark of each value: 0 for a finite one.
void encode_marks(std::byte* marks, const std::byte* values, std::size_t count, DType dtype);

// Where a sum of all ranks' marks is not 0, writes the sum of these values: an infinity, or NaN if
// a value was NaN or both infinities were there.
void place_marks(std::byte* values, const std::byte* sums, std::size_t count, DType dtype);

// Replaces finite values, and leaves infinities and NaN as they are.
void copy_between_marks(std::byte* to, const std::byte* from, std::size_t count, DType dtype);

}  // namespace sparsewire::proto
