// Vectors with few elements, or blocks of elements, that are not zero, as a bitmap of positions and
// the values one after another: the mean of such vectors, and their part in error feedback.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

// How a vector of `count` elements is cut into blocks of at least 1 element; the last may be short.
struct Cut {
  std::size_t count;
  std::size_t block;

  std::size_t blocks() const { return count / block + (count % block != 0); }
  std::size_t length(std::size_t index) const { return std::min(block, count - index * block); }
};

// Adds `added` to `values`, and writes the l2 norm of each block of the sum, in one pass.
template <typename T>
void add_and_measure(T* values, const T* added, const Cut& cut, T* norms);

// A bit for each block, and the elements of the blocks whose bit is set.
template <typename T>
struct Marked {
  const std::uint64_t* bitmap;
  const T* values;
};

// Sets the bits that are set in any of `vectors`, all cut alike, and writes the means of these
// blocks, added up in the order of the vectors, to `means`; returns how many elements these have.
// There is at least one vector.
template <typename T>
std::size_t mean_of_marked(std::span<const Marked<T>> vectors, const Cut& cut,
                           std::uint64_t* bitmap, T* means);

// total += added, at the blocks that are marked.
template <typename T>
void add_marked(T* total, const Cut& cut, Marked<T> added);

// residual = gradient - own, and then gradient = mean, in one pass.
template <typename T>
void feed_back(T* gradient, T* residual, const Cut& cut, Marked<T> own, Marked<T> mean);

}  // namespace sparsewire
