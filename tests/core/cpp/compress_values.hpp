// Values and helpers for the tests of compression kernels.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"

namespace sparsewire::test {

using Values = std::vector<float>;

// Normal, over a few orders of magnitude, with zeros in between.
inline Values random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-8, 2);
  Values values(count);
  for (float& value : values) {
    const int power = exponent(generator);
    value = power == 2 ? 0.0f : std::ldexp(normal(generator), power);
  }
  return values;
}

inline Values block_norms(const Kernels& level, const Values& values, std::size_t block,
                          Norm norm) {
  Values norms((values.size() + block - 1) / block);
  level.compress.norms(values.data(), values.size(), block, norm, norms.data());
  return norms;
}

// The deviation of a sum of independent squares, in units of what is to be expected of it: |result|
// stays below 6 but for once in 10^9. `terms` are squares of standard normal variables.
inline double deviation(double sum, double terms) { return (sum - terms) / std::sqrt(2 * terms); }

}  // namespace sparsewire::test
