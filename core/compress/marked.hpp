// Vectors of which few elements, or blocks of them, are not zero, as a bitmap of their positions
// and their values one behind another: the largest of a vector, or of its spans (top-k), the mean
// of such vectors, and what error feedback does with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

// Sets the bits of the k values of largest magnitude, k <= count, of equal ones those that come
// first, and clears the others, up to the end of the last word. NaN counts as larger than infinity.
// T is float or double.
template <typename T>
void top_k(const T* values, std::size_t count, std::size_t k, std::uint64_t* bitmap);

// How a vector is cut into spans of `span` elements, the last one of what is left, and how many of
// each are kept at most; span and k from 1 on.
struct Spans {
  std::size_t count;
  std::size_t span;
  std::size_t k;

  std::size_t most() const { return count / span * k + std::min(count % span, k); }
};

// Sets the bits of the k values of largest magnitude of each span, of equal ones those that come
// first, but not of zeros, and clears the others; writes those values to `kept`, which has room for
// spans.most(), and returns how many there are. `added`, unless null, is added to the values first.
template <typename T>
std::size_t top_k_of_spans(const Spans& spans, T* values, const T* added, std::uint64_t* bitmap,
                           T* kept);

// How a vector of `count` elements is cut into blocks, from 1 element on; the last may be short.
struct Cut {
  std::size_t count;
  std::size_t block;

  std::size_t blocks() const { return count / block + (count % block != 0); }
  std::size_t length(std::size_t index) const { return std::min(block, count - index * block); }
};

// Adds `added` to `values`, and writes the l2 norm of each block of the sum, in one pass.
template <typename T>
void add_and_measure(T* values, const T* added, const Cut& cut, T* norms);

// A bit for each block, and the elements of those whose bit is set.
template <typename T>
struct Marked {
  const std::uint64_t* bitmap;
  const T* values;
};

// Sets the bits that are set in any of `vectors`, all cut alike, and writes the means of the blocks
// there, added up in the order of the vectors, to `means`; returns how many elements these are.
// There is at least one vector.
template <typename T>
std::size_t mean_of_marked(std::span<const Marked<T>> vectors, const Cut& cut,
                           std::uint64_t* bitmap, T* means);

// residual = gradient - own, and then gradient = mean, in one pass.
template <typename T>
void feed_back(T* gradient, T* residual, const Cut& cut, Marked<T> own, Marked<T> mean);

}  // namespace sparsewire
