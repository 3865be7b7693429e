// A vector cut into square chunks, each of which is multiplied by a matrix from both sides: how a
// transform of rows and columns, such as the discrete cosine transform, is done and undone.
#pragma once

#include <cstddef>

namespace sparsewire {

// A matrix and its transpose, of `side` rows and columns each, row by row.
struct TwoSided {
  const double* matrix;
  const double* transposed;
  std::size_t side;

  std::size_t elements() const { return side * side; }
};

template <typename T>
struct Stretch {
  T* values;
  std::size_t count;
};

// Each chunk X of `in`, side rows of side elements, becomes matrix X transposed in `out`, in double
// until the end. Chunks cover the longer of both; zeros are behind the end of `in`, and what is
// behind the end of `out` is dropped. T is float or double.
template <typename T>
void transform_chunks(const TwoSided& transform, Stretch<const T> in, Stretch<T> out);

}  // namespace sparsewire
