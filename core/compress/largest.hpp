// The largest values of a vector, or of each of its spans (top-k), as a bitmap of positions and the
// values one after another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Sets the bits of the k values of largest magnitude, k <= count, of equal ones the first, and
// clears the others, up to the end of the last word. NaN counts as larger than infinity. T is float
// or double.
template <typename T>
void top_k(const T* values, std::size_t count, std::size_t k, std::uint64_t* bitmap);

// How a vector is cut into spans of `span` elements, of which the last may be shorter, and how many
// values of each are kept at most. span and k are at least 1.
struct Spans {
  std::size_t count;
  std::size_t span;
  std::size_t k;

  std::size_t most() const { return count / span * k + std::min(count % span, k); }
};

// Sets the bits of the k values of largest magnitude of each span, of equal ones the first, but
// never of zeros, and clears the others. Writes these values to `kept`, which has room for
// spans.most(), and returns how many there are. `added` is added to the values first, unless it is
// null.
template <typename T>
std::size_t top_k_of_spans(const Spans& spans, T* values, const T* added, std::uint64_t* bitmap,
                           T* kept);

}  // namespace sparsewire
