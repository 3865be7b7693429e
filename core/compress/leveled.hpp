// Vectors of which each element is a level of its block's scale: the differences that DIANA sends,
// and the step of shifts and gradient that follows from all ranks' differences (Mishchenko et al.,
// Distributed learning with compressed gradient differences, 2019).
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

// A loop of kernels/compress_kernels.hpp that makes values of levels.
template <typename T>
using ValuesOfLevels = void (*)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                                const T* scales, std::uint32_t levels, T* values);

// Such a loop that makes symbols of values. The first value is at `position` of a vector.
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
// nothing of use written, if blocks are longer than 2048, or if a norm is neither zero nor a normal
// number.
template <typename T>
bool difference_levels(const Difference<T>& difference, const Cut& cut, std::uint32_t levels,
                       std::uint64_t key, LevelsOfValues<T> levels_of,
                       const RoomForLevels<T>& room);

// A rank's own shift, the mean of all ranks' shifts, and the memory for the gradient that follows.
template <typename T>
struct Shifts {
  T* own;
  T* mean;
  T* gradient;
};

// gradient = mean shift + m, where m is the mean of `sent`, added up in their order; then the mean
// shift moves by rate * m, and the own shift by rate times the vector that the rank `own` has sent.
// One pass does all of it.
template <typename T>
void follow(std::span<const Leveled<T>> sent, std::size_t own, const Cut& cut, std::uint32_t levels,
            ValuesOfLevels<T> values_of, T rate, const Shifts<T>& shifts);

}  // namespace sparsewire
