// Vectors of which each element is a level of its block's scale, and what DIANA makes of those that
// all ranks have sent (Mishchenko et al., Distributed learning with compressed gradient
// differences, 2019).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/marked.hpp"

namespace sparsewire {

// A symbol for each element, and a scale for each block.
template <typename T>
struct Leveled {
  const std::uint8_t* symbols;
  const T* scales;
};

// What makes values of them: a loop of kernels/compress_kernels.hpp.
template <typename T>
using ValuesOfLevels = void (*)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                                const T* scales, std::uint32_t levels, T* values);

// What a rank has told of its gradients so far, the mean of that over all ranks, and where the
// gradient goes that follows from it.
template <typename T>
struct Shifts {
  T* own;
  T* mean;
  T* gradient;
};

// gradient = mean shift + m, where m is the mean of `sent`, added up in their order; then the mean
// shift moves by rate * m, and the own one by rate times what the rank `own` has sent; in one pass.
template <typename T>
void follow(std::span<const Leveled<T>> sent, std::size_t own, const Cut& cut, std::uint32_t levels,
            ValuesOfLevels<T> values_of, T rate, const Shifts<T>& shifts);

}  // namespace sparsewire
