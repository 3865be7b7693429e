// Vectors of which each element is a level of its block's scale: those of the differences that
// DIANA sends, and what it makes of those that all ranks have sent (Mishchenko et al., Distributed
// learning with compressed gradient differences, 2019).
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

// What makes symbols of values, of which the first is that at `position` of a vector; likewise.
template <typename T>
using LevelsOfValues = void (*)(const T* values, std::size_t count, std::size_t block,
                                const T* scales, std::uint32_t levels, std::uint64_t key,
                                std::size_t position, std::uint8_t* symbols);

template <typename T>
struct Difference {
  const T* values;
  const T* subtracted;
};

template <typename T>
struct RoomForLevels {
  T* scales;
  std::uint8_t* symbols;
};

// Writes the levels of values - subtracted, with l2 norms as scales, in one pass; false, with
// nothing of use written, where blocks are longer than 2048, or a norm is neither zero nor a normal
// number.
template <typename T>
bool difference_levels(const Difference<T>& difference, const Cut& cut, std::uint32_t levels,
                       std::uint64_t key, LevelsOfValues<T> levels_of,
                       const RoomForLevels<T>& room);

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
