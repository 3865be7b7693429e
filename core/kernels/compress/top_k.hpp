// Top-k of a whole vector: the positions of the values of largest magnitude.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Sets the bits of the k values of largest magnitude, k <= count, of equal ones those that come
// first, and clears the others, up to the end of the last word. NaN counts as larger than infinity.
// T is float or double.
template <typename T>
void top_k(const T* values, std::size_t count, std::size_t k, std::uint64_t* bitmap);

}  // namespace sparsewire
