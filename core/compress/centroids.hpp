// Vectors of which each element has one of two magnitudes of its span, and a sign. These magnitudes
// are the means of two classes, the large and the small ones, that have the least squared error
// together: 2-means in one dimension, solved exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/marked.hpp"

namespace sparsewire {

// Symbols are levels plus this number; level 0 is zero, 1 the low magnitude, and 2 the high one.
inline constexpr std::int32_t kCentroidLevels = 2;

// Writes two magnitudes for each block of `cut`, the low one first, and a symbol for each value.
// Zeros stay zero, and belong to no class. Of equally good classes, those with the fewest large
// magnitudes count. If all magnitudes are equal, the low one is zero. Values are finite. T is float
// or double.
//
// With m_1 >= m_2 >= ... the magnitudes that are not zero, classes are split behind the j-th, where
// m_j > m_{j+1}, that has the largest H^2 / j + L^2 / (n - j), with L the sum of the small ones and
// H the sum of all less L. Sums start at each of the magnitudes, and double their length step by
// step: bits are the same wherever it is done like that.
template <typename T>
void take_centroids(const T* values, const Cut& cut, T* magnitudes, std::uint8_t* symbols);

// The values of symbols, which are at most 2 * kCentroidLevels.
template <typename T>
void centroid_values(const std::uint8_t* symbols, const Cut& cut, const T* magnitudes, T* values);

}  // namespace sparsewire
