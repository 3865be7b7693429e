// Products of square matrices in double. Terms are added in the order of the inner index, so that
// bits are the same wherever this runs, unlike those of a library of linear algebra.
#pragma once

#include "kernels/loops/accumulate.hpp"

namespace sparsewire {
namespace {

// So many sums of a row stay in registers.
inline constexpr std::size_t kProductTile = 32;

template <std::size_t kWidth>
inline void product_tile(const double* row, const double* right, std::size_t side, double* out) {
  double sums[kWidth] = {};
  for (std::size_t k = 0; k < side; ++k) {
    const double factor = row[k];
    for (std::size_t i = 0; i < kWidth; ++i) sums[i] += factor * right[k * side + i];
  }
  for (std::size_t i = 0; i < kWidth; ++i) out[i] = sums[i];
}

void product(const double* left, const double* right, std::size_t side, double* out) {
  for (std::size_t row = 0; row < side; ++row, left += side, out += side) {
    std::size_t column = 0;
    for (; column + kProductTile <= side; column += kProductTile) {
      product_tile<kProductTile>(left, right + column, side, out + column);
    }
    for (; column < side; ++column) product_tile<1>(left, right + column, side, out + column);
  }
}

}  // namespace
}  // namespace sparsewire
