// Vectors of which few elements are not zero, as a bitmap of their positions and their values one
// behind another: their mean, and what error feedback does with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

template <typename T>
struct Marked {
  const std::uint64_t* bitmap;
  const T* values;
};

// Sets the bits that are set in any of `vectors`, of `count` elements each, and writes the means of
// the elements there, added up in the order of the vectors, to `means`; returns how many. There is
// at least one vector.
template <typename T>
std::size_t mean_of_marked(std::span<const Marked<T>> vectors, std::size_t count,
                           std::uint64_t* bitmap, T* means);

// residual = gradient - own, and then gradient = mean, in one pass.
template <typename T>
void feed_back(T* gradient, T* residual, std::size_t count, Marked<T> own, Marked<T> mean);

}  // namespace sparsewire
