// Vectors of which few elements are not zero, as a bitmap of their positions and their values one
// behind another: the largest of a vector, or of its spans (top-k), the mean of such vectors, and
// what error feedback does with it.
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
