// Natural compression and signs: powers of two with the right mean, equal at every SIMD level and
// over tiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "compress_values.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;

using Symbols = std::vector<std::uint8_t>;

struct Exponents {
  Symbols exponents;
  Symbols signs;

  bool operator==(const Exponents&) const = default;
};

Exponents natural_compress(const Kernels& level, const Values& values, std::uint64_t key) {
  Exponents result{Symbols(values.size()), Symbols((values.size() + 7) / 8)};
  level.compress.natural_compress(values.data(), values.size(), {key, 0}, result.exponents.data(),
                                  result.signs.data());
  return result;
}

Values natural_decompress(const Kernels& level, const Exponents& code) {
  Values values(code.exponents.size());
  level.compress.natural_decompress(code.exponents.data(), code.signs.data(), values.size(),
                                    values.data());
  return values;
}

}  // namespace

TEST_CASE("natural compression is the same at every level and over tiles") {
  const Values values = random_values(140001, 6);
  const Exponents whole = natural_compress(*available_kernels().front(), values, 7);
  const Values decoded = natural_decompress(*available_kernels().front(), whole);
  for (const Kernels* level : available_kernels()) {
    CHECK(natural_compress(*level, values, 7) == whole);
    CHECK(natural_decompress(*level, whole) == decoded);
    Exponents tiled{Symbols(values.size()), Symbols(whole.signs.size())};
    for (std::size_t begin = 0, tile = 8; begin < values.size(); begin += tile, tile *= 3) {
      tile = std::min(tile, values.size() - begin);
      level->compress.natural_compress(values.data() + begin, tile, {7, begin},
                                       tiled.exponents.data() + begin,
                                       tiled.signs.data() + begin / 8);
    }
    CHECK(tiled == whole);
  }
}

TEST_CASE("natural compression rounds to a neighbouring power of two, with the right mean") {
  constexpr int kDraws = 4000;
  Values values = random_values(400, 8);
  values[0] = 1.5f;
  values[1] = -std::ldexp(1.0f, -127);  // subnormal: half of the smallest power
  values[2] = std::ldexp(1.0f, 127);
  values[3] = -0.25f;
  std::vector<double> sums(values.size());
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const Values drawn = natural_decompress(kernels(), natural_compress(kernels(), values, key));
    for (std::size_t i = 0; i < values.size(); ++i) {
      int exponent = 0;
      if (drawn[i] != 0) REQUIRE(std::fabs(std::frexp(drawn[i], &exponent)) == 0.5f);
      if (i > 1) REQUIRE(std::fabs(drawn[i]) <= 2 * std::fabs(values[i]));
      if (i > 1) REQUIRE(2 * std::fabs(drawn[i]) >= std::fabs(values[i]));
      sums[i] += drawn[i];
    }
  }
  CHECK(sums[2] == kDraws * double(values[2]));
  CHECK(sums[3] == kDraws * -0.25);
  double chi_square = 0, terms = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = std::fabs(double(values[i]));
    const double power = i == 1 ? 0 : std::exp2(std::floor(std::log2(value)));
    const double up = i == 1 ? std::ldexp(1.0, -126) : 2 * power;
    const double variance = (value - power) * (up - value) / (up * up);
    if (value == 0 || variance * kDraws < 30) continue;
    const double error = (std::fabs(sums[i]) / kDraws - value) / up;
    chi_square += error * error * kDraws / variance;
    ++terms;
  }
  REQUIRE(terms > 300);
  CHECK(std::fabs(deviation(chi_square, terms)) < 6);
}

TEST_CASE("the largest finite values do not become infinite") {
  const Values values = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  for (std::uint64_t key = 0; key < 20; ++key) {
    const Exponents code = natural_compress(kernels(), values, key);
    CHECK(natural_decompress(kernels(), code) ==
          Values{std::ldexp(1.0f, 127), -std::ldexp(1.0f, 127)});
  }
}

TEST_CASE("signs come back with the magnitude that is given") {
  for (const std::size_t count : {1u, 8u, 9u, 511u, 513u, 5000u}) {
    const Values values = random_values(count, 10);
    for (const Kernels* level : available_kernels()) {
      Symbols bits((count + 7) / 8, 0xff);
      level->compress.signs(values.data(), count, bits.data());
      Values decoded(count);
      level->compress.apply_signs(bits.data(), count, 0.75f, decoded.data());
      for (std::size_t i = 0; i < count; ++i)
        REQUIRE(decoded[i] == std::copysign(0.75f, values[i]));
      if (count % 8 != 0) CHECK((bits.back() >> (count % 8)) == 0);
    }
  }
}
