// Centroids: the best of all splits, and the same bits on every level; and the order of magnitudes
// that they, and the largest of spans, rest on.
#include "compress/centroids.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "compress_values.hpp"
#include "kernels/kernels.hpp"

namespace centroids_test {

using namespace sparsewire;
using namespace sparsewire::test;

template <typename T>
struct Code {
  ValuesOf<T> magnitudes;
  std::vector<std::uint8_t> symbols;
  ValuesOf<T> values;
  bool operator==(const Code&) const = default;
};

template <typename T>
Code<T> code_of(const ValuesOf<T>& values, std::size_t block) {
  const Cut cut{values.size(), block};
  Code<T> code{ValuesOf<T>(2 * cut.blocks()), std::vector<std::uint8_t>(values.size()),
               ValuesOf<T>(values.size())};
  take_centroids(values.data(), cut, code.magnitudes.data(), code.symbols.data());
  centroid_values(code.symbols.data(), cut, code.magnitudes.data(), code.values.data());
  return code;
}

template <typename T>
double squares(const ValuesOf<T>& values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

// The least error of two magnitudes, by all splits.
template <typename T>
double least_error(const ValuesOf<T>& values) {
  std::vector<double> sizes;
  for (const T value : values) {
    if (value != 0) sizes.push_back(std::fabs(static_cast<double>(value)));
  }
  std::sort(sizes.begin(), sizes.end());
  double least = squares(values);
  for (std::size_t split = 0; split < sizes.size(); ++split) {
    double error = 0;
    for (const auto& [from, to] : {std::pair{std::size_t{0}, split}, {split, sizes.size()}}) {
      double sum = 0;
      for (std::size_t i = from; i < to; ++i) sum += sizes[i];
      const double mean = sum / static_cast<double>(std::max<std::size_t>(to - from, 1));
      for (std::size_t i = from; i < to; ++i) error += (sizes[i] - mean) * (sizes[i] - mean);
    }
    least = std::min(least, error);
  }
  return least;
}

template <typename T>
double error_of(const ValuesOf<T>& values, const ValuesOf<T>& sent) {
  ValuesOf<T> difference(values.size());
  std::transform(values.begin(), values.end(), sent.begin(), difference.begin(), std::minus<>());
  return squares(difference);
}

TEST_CASE_TEMPLATE("no other two magnitudes are nearer, and nothing is left over", T, float,
                   double) {
  for (const std::size_t count : {1u, 2u, 3u, 64u, 255u, 256u, 257u, 700u}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const ValuesOf<T> values = random_values<T>(count, seed);
      const Code<T> code = code_of(values, count);
      const double error = error_of(values, code.values), all = squares(values);
      CHECK(error == doctest::Approx(least_error(values)).epsilon(1e-6));
      CHECK(error == doctest::Approx(all - squares(code.values)).epsilon(1e-6));
    }
  }
}

TEST_CASE_TEMPLATE("levels of SIMD make the same bits", T, float, double) {
  const ValuesOf<T> values = random_values<T>(5000, 3);
  for (const std::size_t block : {1u, 7u, 64u, 256u, 300u, 5000u}) {
    REQUIRE(select_kernels(SimdLevel::portable));
    const Code<T> expected = code_of(values, block);
    for (const Kernels* level : available_kernels()) {
      REQUIRE(select_kernels(level->level));
      CHECK(code_of(values, block) == expected);
    }
  }
}

TEST_CASE_TEMPLATE("signs stay, and zeros", T, float, double) {
  const ValuesOf<T> values = {3, 0, -1, -3, T{-0.0}, 1, 3};
  const Code<T> code = code_of(values, values.size());
  CHECK(code.magnitudes == ValuesOf<T>{1, 3});
  CHECK(code.symbols == std::vector<std::uint8_t>{4, 2, 1, 0, 2, 3, 4});
  CHECK(code.values == values);
  CHECK_FALSE(std::signbit(code.values[4]));
}

TEST_CASE_TEMPLATE("equal magnitudes are one class, and zeros are none", T, float, double) {
  CHECK(code_of<T>({2, -2, 2, 0}, 4).magnitudes == ValuesOf<T>{0, 2});
  CHECK(code_of<T>({0, 0}, 2).magnitudes == ValuesOf<T>{0, 0});
}

TEST_CASE_TEMPLATE("the largest and the smallest numbers stay what they are", T, float, double) {
  constexpr T kMost = std::numeric_limits<T>::max(), kLeast = std::numeric_limits<T>::denorm_min();
  for (const ValuesOf<T>& values : {ValuesOf<T>(100, kMost),
                                    ValuesOf<T>(100, -kLeast),
                                    ValuesOf<T>{kMost, -1},
                                    {3 * kLeast, kLeast}}) {
    CHECK(code_of(values, values.size()).values == values);
  }
}

TEST_CASE_TEMPLATE("magnitudes are sorted, and the k-th largest found", T, float, double) {
  for (const std::size_t count : {1u, 2u, 15u, 64u, 255u, 256u}) {
    ValuesOf<T> values = random_values<T>(count, 9);
    values[count / 2] = values[0];
    ValuesOf<T> expected(count), sorted(count);
    std::transform(values.begin(), values.end(), expected.begin(),
                   [](T value) { return std::fabs(value); });
    std::sort(expected.begin(), expected.end(), std::greater<>());
    for (const Kernels* level : available_kernels()) {
      const VectorKernels<T>& loops = level->compress.of<T>();
      loops.sort_magnitudes(values.data(), count, sorted.data());
      CHECK(sorted == expected);
      for (std::size_t k = 1; k <= count; ++k) {
        CHECK(loops.kth_largest(values.data(), count, k) == expected[k - 1]);
      }
    }
  }
}

}  // namespace centroids_test
