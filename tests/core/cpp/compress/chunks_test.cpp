// Chunks multiplied from both sides, nearest powers of two, and steps that show as bfloat16:
// against plain sums and searches, with the same bits on every level.
#include "compress/chunks.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/bitmap.hpp"
#include "compress_values.hpp"
#include "kernels/kernels.hpp"

namespace chunks_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Matrix = std::vector<double>;

Matrix transposed(const Matrix& matrix, std::size_t side) {
  Matrix result(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    result[i] = matrix[i % side * side + i / side];
  }
  return result;
}

// From the first term to the last.
Matrix product(const Matrix& left, const Matrix& right, std::size_t side) {
  Matrix result(side * side);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t k = 0; k < side; ++k) {
      const double term = left[i / side * side + k] * right[k * side + i % side];
      result[i] += term;
    }
  }
  return result;
}

template <typename T>
ValuesOf<T> reference(const Matrix& matrix, std::size_t side, const ValuesOf<T>& in,
                      std::size_t out) {
  ValuesOf<T> result;
  const Matrix other = transposed(matrix, side);
  for (std::size_t first = 0; result.size() < out; first += side * side) {
    Matrix chunk(side * side);
    for (std::size_t i = 0; i < chunk.size() && first + i < in.size(); ++i) {
      chunk[i] = in[first + i];
    }
    for (const double each : product(product(matrix, chunk, side), other, side)) {
      result.push_back(static_cast<T>(each));
    }
  }
  result.resize(out);
  return result;
}

TEST_CASE_TEMPLATE("chunks are multiplied from both sides in one order", T, float, double) {
  for (const std::size_t side : {1u, 3u, 32u, 33u, 64u}) {
    const std::size_t chunk = side * side;
    const Matrix matrix = random_values<double>(chunk, 4);
    const Matrix other = transposed(matrix, side);
    for (const std::size_t count : {std::size_t{1}, chunk, 2 * chunk + 1}) {
      const ValuesOf<T> values = random_values<T>(count, 7);
      const std::size_t whole = (count + chunk - 1) / chunk * chunk;
      for (const std::size_t out : {whole, count}) {
        const ValuesOf<T> expected = reference(matrix, side, values, out);
        for (const Kernels* level : available_kernels()) {
          REQUIRE(select_kernels(level->level));
          ValuesOf<T> result(out);
          transform_chunks<T>({matrix.data(), other.data(), side}, {values.data(), count},
                              {result.data(), out});
          CHECK(result == expected);
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("chunks of zeros become zeros without a sign", T, float, double) {
  const Matrix matrix(4, -1.0);
  const ValuesOf<T> values(6, T{-0.0});
  ValuesOf<T> result(8, T{7});
  transform_chunks<T>({matrix.data(), matrix.data(), 2}, {values.data(), values.size()},
                      {result.data(), result.size()});
  for (const T value : result) CHECK((value == 0 && !std::signbit(value)));
}

// The magnitudes that levels stand for.
template <typename T>
ValuesOf<T> sizes_of(T scale, int levels) {
  ValuesOf<T> sizes{0};
  for (int level = 1; level <= levels; ++level) sizes.push_back(std::ldexp(scale, level - levels));
  return sizes;
}

TEST_CASE_TEMPLATE("no other power of the scale is nearer", T, float, double) {
  constexpr int kLevels = 7;
  ValuesOf<T> values = random_values<T>(3000, 5);
  for (const std::size_t block : {1u, 10u, 512u}) {
    for (const Kernels* level : available_kernels()) {
      const VectorKernels<T>& loops = level->compress.of<T>();
      ValuesOf<T> scales((values.size() + block - 1) / block), sent(values.size());
      std::vector<std::uint8_t> symbols(values.size());
      loops.nearest_powers(values.data(), values.size(), block, kLevels, scales.data(),
                           symbols.data());
      loops.natural_undither(symbols.data(), values.size(), block, scales.data(), kLevels,
                             sent.data());
      bool all_nearest = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T error = std::fabs(values[i] - sent[i]);
        for (const T size : sizes_of(scales[i / block], kLevels)) {
          all_nearest &= error <= std::fabs(std::fabs(values[i]) - size);
        }
      }
      CHECK(all_nearest);
    }
  }
}

TEST_CASE_TEMPLATE("scales are powers from the smallest normal one to the largest", T, float,
                   double) {
  using Limits = std::numeric_limits<T>;
  const T least = Limits::min(), most = std::ldexp(T{1}, Limits::max_exponent - 1);
  const ValuesOf<T> values = {0, Limits::denorm_min(), T{1.49}, T{1.5}, Limits::max()};
  for (const Kernels* level : available_kernels()) {
    ValuesOf<T> scales(5);
    std::uint8_t symbols[5];
    level->compress.of<T>().nearest_powers(values.data(), 5, 1, 7, scales.data(), symbols);
    CHECK(scales == ValuesOf<T>{least, least, 1, 2, most});
    CHECK(std::vector<std::uint8_t>(symbols, symbols + 5) ==
          std::vector<std::uint8_t>{7, 7, 14, 14, 14});
  }
}

TEST_CASE_TEMPLATE("what shows is what changes the nearest bfloat16", T, float, double) {
  constexpr T kUnit = T{1} / 128;  // of bfloat16 from 1 on
  const ValuesOf<T> parameters = {1, 1, 1, 0, T{-0.0}, T{1} / 1024, 3, 1};
  const ValuesOf<T> values = {
      kUnit, -kUnit / 2, -kUnit * T{0.51}, 0, std::ldexp(T{1}, -140), T{1} / 512, 0, -kUnit};
  for (const Kernels* level : available_kernels()) {
    std::uint64_t bitmap = ~std::uint64_t{0};
    // Half a unit is a tie, which goes to the even number.
    CHECK(level->compress.of<T>().visible(values.data(), 8, parameters.data(), 1, &bitmap) == 4);
    CHECK(bitmap == 0b10100101);
    CHECK(level->compress.of<T>().visible(values.data(), 8, parameters.data(), T{0.25}, &bitmap) ==
          1);
    CHECK(bitmap == 0b00100000);
  }
}

}  // namespace chunks_test
