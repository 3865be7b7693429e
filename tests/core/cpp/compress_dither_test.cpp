// Norms and dithering: against plain arithmetic, equal at every SIMD level and over tiles, and
// right in the mean.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "compress_values.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;

using Symbols = std::vector<std::uint8_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One of the two dithering operators, of a level.
struct Dither {
  decltype(CompressKernels::dither) encode;
  decltype(CompressKernels::undither) decode;
};

Dither linear(const Kernels& level) { return {level.compress.dither, level.compress.undither}; }
Dither natural(const Kernels& level) {
  return {level.compress.natural_dither, level.compress.natural_undither};
}

Symbols encode(const Dither& dither, const Values& values, std::size_t block, const Values& norms,
               std::uint32_t levels, std::uint64_t key) {
  Symbols symbols(values.size());
  dither.encode(values.data(), values.size(), block, norms.data(), levels, {key, 0},
                symbols.data());
  return symbols;
}

Values decode(const Dither& dither, const Symbols& symbols, std::size_t block, const Values& norms,
              std::uint32_t levels) {
  Values values(symbols.size());
  dither.decode(symbols.data(), symbols.size(), block, norms.data(), levels, values.data());
  return values;
}

double magnitude_of(int level, std::uint32_t levels, bool is_natural) {
  if (level == 0) return 0;
  const auto top = static_cast<int>(levels);
  return is_natural ? std::ldexp(1.0, std::abs(level) - top) : std::abs(level) / double(top);
}

// The variance of the rounding of a ratio from 0 to 1 to its two neighbours.
double rounding_variance(double ratio, std::uint32_t levels, bool is_natural) {
  int below = 0;
  const auto top = static_cast<int>(levels);
  while (below < top && magnitude_of(below + 1, levels, is_natural) <= ratio) ++below;
  if (below == top) return 0;
  const double low = magnitude_of(below, levels, is_natural);
  const double high = magnitude_of(below + 1, levels, is_natural);
  return (high - ratio) * (ratio - low);
}

}  // namespace

TEST_CASE("norms are those of plain arithmetic, with equal bits at every level") {
  for (const std::size_t count : {1u, 15u, 16u, 1000u, 70001u}) {
    const Values values = random_values(count, 1);
    for (const std::size_t block : {std::size_t{1}, std::size_t{64}, std::size_t{333}, count}) {
      for (const Norm norm : {Norm::l1, Norm::l2, Norm::linf}) {
        const Values norms = block_norms(*available_kernels().front(), values, block, norm);
        for (std::size_t b = 0; b < norms.size(); ++b) {
          double sum = 0, squares = 0, largest = 0;
          for (std::size_t i = b * block; i < std::min(count, (b + 1) * block); ++i) {
            sum += std::fabs(values[i]);
            squares += double(values[i]) * values[i];
            largest = std::max(largest, std::fabs(double(values[i])));
          }
          const double expected[] = {sum, std::sqrt(squares), largest};
          REQUIRE(norms[b] ==
                  doctest::Approx(expected[static_cast<int>(norm)]).epsilon(1e-6).scale(1e-9));
          if (norm != Norm::l1) REQUIRE(norms[b] >= static_cast<float>(largest));
        }
        for (const Kernels* level : available_kernels()) {
          CHECK(block_norms(*level, values, block, norm) == norms);
        }
      }
    }
  }
}

TEST_CASE("a norm that float32 cannot hold is infinite") {
  const Values values(100, std::numeric_limits<float>::max());
  for (const Kernels* level : available_kernels()) {
    CHECK(block_norms(*level, values, 100, Norm::l2)[0] == kInfinity);
    CHECK(block_norms(*level, values, 100, Norm::linf)[0] == values[0]);
  }
}

TEST_CASE("the first value that is not finite is found") {
  for (const Kernels* level : available_kernels()) {
    Values values = random_values(3000, 2);
    const auto find = [&] {
      return level->compress.first_not_finite(values.data(), values.size());
    };
    CHECK(find() == 3000);
    values[2999] = -kInfinity;
    CHECK(find() == 2999);
    values[1024] = kInfinity;
    values[1025] = std::numeric_limits<float>::quiet_NaN();
    CHECK(find() == 1024);
    values[3] = -std::numeric_limits<float>::quiet_NaN();
    CHECK(find() == 3);
  }
}

TEST_CASE("symbols are the same at every level and over tiles of blocks") {
  constexpr std::size_t kCount = 140000, kBlock = 1000;
  const Values values = random_values(kCount, 3);
  const Values norms = block_norms(*available_kernels().front(), values, kBlock, Norm::linf);
  for (const std::uint32_t levels : {1u, 2u, 3u, 7u, 127u}) {
    for (const bool is_natural : {false, true}) {
      const auto of = is_natural ? natural : linear;
      const Dither first = of(*available_kernels().front());
      const Symbols whole = encode(first, values, kBlock, norms, levels, 42);
      const Values decoded = decode(first, whole, kBlock, norms, levels);
      CHECK(whole != encode(first, values, kBlock, norms, levels, 43));
      for (const Kernels* level : available_kernels()) {
        CHECK(encode(of(*level), values, kBlock, norms, levels, 42) == whole);
        CHECK(decode(of(*level), whole, kBlock, norms, levels) == decoded);
        Symbols tiled(kCount);
        for (std::size_t begin = 0, tile = kBlock; begin < kCount; begin += tile, tile += kBlock) {
          tile = std::min(tile, kCount - begin);
          of(*level).encode(values.data() + begin, tile, kBlock, norms.data() + begin / kBlock,
                            levels, {42, begin}, tiled.data() + begin);
        }
        CHECK(tiled == whole);
      }
    }
  }
}

TEST_CASE("levels stay as they are, and a value is rounded to one of its neighbours") {
  for (const bool is_natural : {false, true}) {
    const Dither dither = (is_natural ? natural : linear)(kernels());
    for (const std::uint32_t levels : {1u, 2u, 5u, 8u, 127u}) {
      const Values norms = {3.0f};
      Values exact;
      for (int level = -int(levels); level <= int(levels); ++level) {
        const double magnitude = magnitude_of(level, levels, is_natural);
        exact.push_back(static_cast<float>(std::copysign(magnitude, level)) * norms[0]);
      }
      const bool representable = is_natural || (levels & (levels - 1)) == 0;
      for (std::uint64_t key = 0; representable && key < 50; ++key) {
        const Symbols symbols = encode(dither, exact, exact.size(), norms, levels, key);
        REQUIRE(decode(dither, symbols, exact.size(), norms, levels) == exact);
      }
      const Values values = random_values(5000, 4);
      const Values wide = block_norms(kernels(), values, values.size(), Norm::linf);
      const Symbols symbols = encode(dither, values, values.size(), wide, levels, 1);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const int level = int(symbols[i]) - int(levels);
        REQUIRE(std::abs(level) <= int(levels));
        const double ratio = std::fabs(double(values[i])) / wide[0];
        const int size = std::abs(level);
        if (size > 0) REQUIRE(magnitude_of(size - 1, levels, is_natural) <= ratio * (1 + 1e-6));
        if (size < int(levels)) {
          REQUIRE(magnitude_of(size + 1, levels, is_natural) >= ratio * (1 - 1e-6));
        }
        if (level != 0) REQUIRE(std::signbit(values[i]) == (level < 0));
      }
    }
  }
}

TEST_CASE("dithering has the mean of its input, and the variance that it should have") {
  constexpr int kDraws = 4000;
  const Values values = random_values(400, 5);
  for (const Norm norm : {Norm::l2, Norm::linf}) {
    const Values norms = block_norms(kernels(), values, 200, norm);
    for (const bool is_natural : {false, true}) {
      const Dither dither = (is_natural ? natural : linear)(kernels());
      for (const std::uint32_t levels : {1u, 3u, 8u}) {
        std::vector<double> sums(values.size());
        double totals = 0, total_variance = 0, chi_square = 0, terms = 0;
        for (std::uint64_t key = 0; key < kDraws; ++key) {
          const Symbols symbols = encode(dither, values, 200, norms, levels, key);
          const Values drawn = decode(dither, symbols, 200, norms, levels);
          double total = 0;
          for (std::size_t i = 0; i < values.size(); ++i) {
            sums[i] += drawn[i];
            total += (double(drawn[i]) - values[i]) / norms[i / 200];
          }
          totals += total * total;
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double unit = norms[i / 200];
          const double variance =
              rounding_variance(std::fabs(values[i]) / unit, levels, is_natural);
          total_variance += variance;
          // Rare events are not normal enough to be counted.
          if (variance * kDraws < 30 * std::pow(magnitude_of(1, levels, is_natural), 2)) continue;
          const double error = (sums[i] / kDraws - values[i]) / unit;
          chi_square += error * error * kDraws / variance;
          ++terms;
        }
        REQUIRE(terms > 10);
        CHECK(std::fabs(deviation(chi_square, terms)) < 6);
        // Independent roundings: the variance of their sum is the sum of their variances.
        CHECK(std::fabs(deviation(totals / total_variance, kDraws)) < 6);
      }
    }
  }
}

TEST_CASE("blocks of zeros and zeros in blocks stay zero") {
  for (const Kernels* level : available_kernels()) {
    Values values(300);
    values[50] = -0.0f;
    values[299] = std::numeric_limits<float>::denorm_min();
    const Values norms = block_norms(*level, values, 100, Norm::l2);
    CHECK(norms[0] == 0);
    for (const Dither& dither : {linear(*level), natural(*level)}) {
      const Symbols symbols = encode(dither, values, 100, norms, 4, 9);
      CHECK(std::count(symbols.begin(), symbols.end(), 4) == 299);
      CHECK(decode(dither, symbols, 100, norms, 4) == values);
    }
  }
}
