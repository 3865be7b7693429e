// Natural compression and signs: powers of two with the right mean, equal at every SIMD level and
// over tiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "compress_values.hpp"

namespace compress_natural_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Codes = std::vector<std::uint16_t>;

template <typename T>
Codes natural_compress(const Kernels& level, const ValuesOf<T>& values, std::uint64_t key) {
  Codes codes(values.size());
  level.compress.of<T>().natural_compress(values.data(), values.size(), key, codes.data());
  return codes;
}

template <typename T>
ValuesOf<T> natural_decompress(const Kernels& level, const Codes& codes, std::uint32_t base = 0) {
  ValuesOf<T> values(codes.size());
  level.compress.of<T>().natural_decompress(codes.data(), values.size(), base, values.data());
  return values;
}

TEST_CASE_TEMPLATE("natural compression is the same at every level", T, float, double) {
  const ValuesOf<T> values = random_values<T>(140001, 6);
  const Codes whole = natural_compress(*available_kernels().front(), values, 7);
  const ValuesOf<T> decoded = natural_decompress<T>(*available_kernels().front(), whole);
  for (const Kernels* level : available_kernels()) {
    CHECK(natural_compress(*level, values, 7) == whole);
    CHECK(natural_decompress<T>(*level, whole) == decoded);
  }
}

TEST_CASE_TEMPLATE("codes without their base, of a byte or two, mean the same", T, float, double) {
  const ValuesOf<T> values = random_values<T>(5003, 9);
  const Codes codes = natural_compress(kernels(), values, 7);
  const ValuesOf<T> decoded = natural_decompress<T>(kernels(), codes);
  Codes least(1, 65535);
  for (const auto code : codes) least[0] = code == 0 ? least[0] : std::min(least[0], code);
  const std::uint32_t base = least[0] - 1u;
  Codes wide(codes.size());
  std::vector<std::uint8_t> narrow(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    wide[i] = static_cast<std::uint16_t>(codes[i] == 0 ? 0 : codes[i] - base);
    REQUIRE(wide[i] < 256);
    narrow[i] = static_cast<std::uint8_t>(wide[i]);
  }
  for (const Kernels* level : available_kernels()) {
    CHECK(natural_decompress<T>(*level, wide, base) == decoded);
    ValuesOf<T> restored(narrow.size());
    level->compress.of<T>().natural_decompress_bytes(narrow.data(), narrow.size(), base,
                                                     restored.data());
    CHECK(restored == decoded);
  }
}

TEST_CASE_TEMPLATE("natural compression rounds to a neighbouring power, with the right mean", T,
                   float, double) {
  constexpr int kDraws = 4000;
  constexpr int kSmallest = std::numeric_limits<T>::min_exponent - 1;
  constexpr int kLargest = std::numeric_limits<T>::max_exponent - 1;
  ValuesOf<T> values = random_values<T>(400, 8);
  values[0] = T(1.5);
  values[1] = -std::ldexp(T{1}, kSmallest - 1);  // subnormal: half of the smallest power
  values[2] = std::ldexp(T{1}, kLargest);
  values[3] = T(-0.25);
  std::vector<double> sums(values.size());
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const auto drawn = natural_decompress<T>(kernels(), natural_compress(kernels(), values, key));
    for (std::size_t i = 0; i < values.size(); ++i) {
      int exponent = 0;
      if (drawn[i] != 0) REQUIRE(std::fabs(std::frexp(drawn[i], &exponent)) == T(0.5));
      if (i > 1) REQUIRE(std::fabs(drawn[i] / 2) <= std::fabs(values[i]));
      if (i > 1) REQUIRE(std::fabs(drawn[i]) >= std::fabs(values[i] / 2));
      // In units of 2^12, so that the largest of double do not overflow.
      sums[i] += std::ldexp(double(drawn[i]), -12);
    }
  }
  CHECK(sums[2] == kDraws * std::ldexp(double(values[2]), -12));
  CHECK(sums[3] == kDraws * std::ldexp(-0.25, -12));
  double chi_square = 0, terms = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = std::fabs(double(values[i]));
    const double power = i == 1 ? 0 : std::exp2(std::floor(std::log2(value)));
    const double up = i == 1 ? std::ldexp(1.0, kSmallest) : 2 * power;
    // Shares of `up`, as squares of the smallest powers vanish.
    const double share = (value - power) / up, rest = (up - value) / up;
    if (value == 0 || i == 2 || share * rest * kDraws < 30) continue;
    const double error = std::ldexp(std::fabs(sums[i]) / kDraws / up, 12) - value / up;
    chi_square += error * error * kDraws / (share * rest);
    ++terms;
  }
  REQUIRE(terms > 300);
  CHECK(std::fabs(deviation(chi_square, terms)) < 6);
}

TEST_CASE_TEMPLATE("zeros and what vanishes have the code of zero", T, float, double) {
  const T tiny = std::numeric_limits<T>::denorm_min();
  const ValuesOf<T> values = {0, T(-0.0), tiny, -tiny};
  CHECK(natural_compress(kernels(), values, 1) == Codes(4));
}

TEST_CASE("the largest values may get the exponent of infinity") {
  const Values values = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  CHECK(natural_compress(kernels(), values, 1) == Codes{2 * 255, 2 * 255 + 1});
}

TEST_CASE_TEMPLATE("signs are told from zeros", T, float, double) {
  ValuesOf<T> values = random_values<T>(5003, 10);
  values[1] = T(-0.0);
  values[2] = -std::numeric_limits<T>::denorm_min();
  for (const Kernels* level : available_kernels()) {
    std::vector<std::uint8_t> symbols(values.size(), 9);
    level->compress.of<T>().signs(values.data(), values.size(), symbols.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(symbols[i] == (values[i] > 0 ? 2 : values[i] < 0 ? 0 : 1));
    }
  }
}

}  // namespace compress_natural_test
