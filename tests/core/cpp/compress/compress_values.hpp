// Values and helpers for the tests of compression kernels.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"

namespace sparsewire::test {

template <typename T>
using ValuesOf = std::vector<T>;
using Values = ValuesOf<float>;

// Normal, over a few orders of magnitude, with zeros in between. Those of double are not all
// float32.
template <typename T = float>
ValuesOf<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<T> normal;
  std::uniform_int_distribution<int> exponent(-8, 2);
  ValuesOf<T> values(count);
  for (T& value : values) {
    const int power = exponent(generator);
    value = power == 2 ? T{0} : std::ldexp(normal(generator), power);
  }
  return values;
}

template <typename T>
ValuesOf<T> block_norms(const Kernels& level, const ValuesOf<T>& values, std::size_t block,
                        double power) {
  ValuesOf<T> norms((values.size() + block - 1) / block);
  level.compress.of<T>().norms(values.data(), values.size(), block, power, norms.data());
  return norms;
}

inline constexpr double kLinf = std::numeric_limits<double>::infinity();

// The deviation of a sum of independent squares, in units of what is to be expected of it: |result|
// stays below 6 but for once in 10^9. `terms` are squares of standard normal variables.
inline double deviation(double sum, double terms) { return (sum - terms) / std::sqrt(2 * terms); }

}  // namespace sparsewire::test
