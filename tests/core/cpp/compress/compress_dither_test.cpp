// Norms, dithering and rounding: against plain arithmetic, equal at every SIMD level, and
// right in the mean.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "compress_values.hpp"

namespace compress_dither_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Symbols = std::vector<std::uint8_t>;

// One of the two dithering operators, of a level.
template <typename T>
struct Dither {
  decltype(VectorKernels<T>::dither) encode;
  decltype(VectorKernels<T>::undither) decode;
};

template <typename T>
Dither<T> dither_of(const Kernels& level, bool is_natural) {
  const VectorKernels<T>& table = level.compress.of<T>();
  return is_natural ? Dither<T>{table.natural_dither, table.natural_undither}
                    : Dither<T>{table.dither, table.undither};
}

template <typename T>
Symbols encode(const Dither<T>& dither, const ValuesOf<T>& values, std::size_t block,
               const ValuesOf<T>& norms, std::uint32_t levels, std::uint64_t key) {
  Symbols symbols(values.size());
  dither.encode(values.data(), values.size(), block, norms.data(), levels, key, 0, symbols.data());
  return symbols;
}

template <typename T>
ValuesOf<T> decode(const Dither<T>& dither, const Symbols& symbols, std::size_t block,
                   const ValuesOf<T>& norms, std::uint32_t levels) {
  ValuesOf<T> values(symbols.size());
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

TEST_CASE_TEMPLATE("norms are those of plain arithmetic, with equal bits at every level", T, float,
                   double) {
  for (const std::size_t count : {1u, 15u, 16u, 1000u, 70001u}) {
    const ValuesOf<T> values = random_values<T>(count, 1);
    for (const std::size_t block : {std::size_t{1}, std::size_t{64}, std::size_t{333}, count}) {
      for (const double power : {1.0, 1.5, 2.0, 3.0, 20.0, kLinf}) {
        const ValuesOf<T> norms = block_norms(*available_kernels().front(), values, block, power);
        for (std::size_t b = 0; b < norms.size(); ++b) {
          double sum = 0, largest = 0;
          for (std::size_t i = b * block; i < std::min(count, (b + 1) * block); ++i) {
            sum += std::pow(std::fabs(values[i]), power);
            largest = std::max(largest, std::fabs(double(values[i])));
          }
          const double expected = std::isinf(power) ? largest : std::pow(sum, 1 / power);
          REQUIRE(norms[b] == doctest::Approx(expected).epsilon(1e-6).scale(1e-9));
          if (power != 1) REQUIRE(norms[b] >= static_cast<T>(largest));
        }
        for (const Kernels* level : available_kernels()) {
          CHECK(block_norms(*level, values, block, power) == norms);
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("a mean magnitude is that of plain arithmetic, and at most the largest", T,
                   float, double) {
  const ValuesOf<T> values = random_values<T>(1000, 1);
  for (const Kernels* level : available_kernels()) {
    ValuesOf<T> means(4);
    level->compress.of<T>().means(values.data(), 1000, 300, means.data());
    for (std::size_t b = 0; b < means.size(); ++b) {
      const std::size_t end = std::min<std::size_t>(1000, (b + 1) * 300);
      double sum = 0;
      for (std::size_t i = b * 300; i < end; ++i) sum += std::fabs(double(values[i]));
      CHECK(means[b] == doctest::Approx(sum / static_cast<double>(end - b * 300)).epsilon(1e-6));
    }
    const ValuesOf<T> largest(3, std::numeric_limits<T>::max());
    level->compress.of<T>().means(largest.data(), 3, 3, means.data());
    CHECK(means[0] == doctest::Approx(largest[0]).epsilon(1e-6));
    CHECK(means[0] <= largest[0]);
  }
}

TEST_CASE_TEMPLATE("norms neither overflow nor vanish on the way", T, float, double) {
  for (const Kernels* level : available_kernels()) {
    for (const T value : {std::numeric_limits<T>::max() / 8, std::numeric_limits<T>::min() * 8}) {
      const ValuesOf<T> values(16, value);
      CHECK(block_norms(*level, values, 16, 2)[0] == 4 * value);
      CHECK(block_norms(*level, values, 16, 4)[0] == doctest::Approx(double(2 * value)));
    }
    const ValuesOf<T> values(100, std::numeric_limits<T>::max());
    CHECK(std::isinf(block_norms(*level, values, 100, 2)[0]));
    CHECK(std::isinf(block_norms(*level, values, 100, 3)[0]));
    CHECK(block_norms(*level, values, 100, kLinf)[0] == values[0]);
  }
}

TEST_CASE_TEMPLATE("the first value that is not finite is found", T, float, double) {
  for (const Kernels* level : available_kernels()) {
    ValuesOf<T> values = random_values<T>(3000, 2);
    const auto find = [&] {
      return level->compress.of<T>().first_not_finite(values.data(), values.size());
    };
    CHECK(find() == 3000);
    values[2999] = -std::numeric_limits<T>::infinity();
    CHECK(find() == 2999);
    values[1024] = std::numeric_limits<T>::infinity();
    values[1025] = std::numeric_limits<T>::quiet_NaN();
    CHECK(find() == 1024);
    values[3] = -std::numeric_limits<T>::quiet_NaN();
    CHECK(find() == 3);
  }
}

TEST_CASE_TEMPLATE("symbols are the same at every level", T, float, double) {
  constexpr std::size_t kCount = 140000, kBlock = 1000;
  const ValuesOf<T> values = random_values<T>(kCount, 3);
  const ValuesOf<T> norms = block_norms(*available_kernels().front(), values, kBlock, kLinf);
  for (const std::uint32_t levels : {1u, 2u, 3u, 7u, 127u}) {
    for (const bool is_natural : {false, true}) {
      const Dither first = dither_of<T>(*available_kernels().front(), is_natural);
      const Symbols whole = encode(first, values, kBlock, norms, levels, 42);
      const ValuesOf<T> decoded = decode(first, whole, kBlock, norms, levels);
      CHECK(whole != encode(first, values, kBlock, norms, levels, 43));
      for (const Kernels* level : available_kernels()) {
        const Dither dither = dither_of<T>(*level, is_natural);
        CHECK(encode(dither, values, kBlock, norms, levels, 42) == whole);
        CHECK(decode(dither, whole, kBlock, norms, levels) == decoded);
      }
    }
  }
}

TEST_CASE_TEMPLATE("levels stay as they are, and a value is rounded to one of its neighbours", T,
                   float, double) {
  for (const bool is_natural : {false, true}) {
    const Dither dither = dither_of<T>(kernels(), is_natural);
    for (const std::uint32_t levels : {1u, 2u, 5u, 8u, 127u}) {
      const ValuesOf<T> norms = {3};
      ValuesOf<T> exact;
      for (int level = -int(levels); level <= int(levels); ++level) {
        const double magnitude = magnitude_of(level, levels, is_natural);
        exact.push_back(static_cast<T>(std::copysign(magnitude, level)) * norms[0]);
      }
      const bool representable = is_natural || (levels & (levels - 1)) == 0;
      for (std::uint64_t key = 0; representable && key < 50; ++key) {
        const Symbols symbols = encode(dither, exact, exact.size(), norms, levels, key);
        REQUIRE(decode(dither, symbols, exact.size(), norms, levels) == exact);
      }
      const ValuesOf<T> values = random_values<T>(5000, 4);
      const ValuesOf<T> wide = block_norms(kernels(), values, values.size(), kLinf);
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

TEST_CASE_TEMPLATE("dithering has the mean of its input, and the variance that it should have", T,
                   float, double) {
  constexpr int kDraws = 4000;
  const ValuesOf<T> values = random_values<T>(400, 5);
  for (const double power : {2.0, kLinf}) {
    const ValuesOf<T> norms = block_norms(kernels(), values, 200, power);
    for (const bool is_natural : {false, true}) {
      const Dither dither = dither_of<T>(kernels(), is_natural);
      for (const std::uint32_t levels : {1u, 3u, 8u}) {
        std::vector<double> sums(values.size());
        double totals = 0, total_variance = 0, chi_square = 0, terms = 0;
        for (std::uint64_t key = 0; key < kDraws; ++key) {
          const Symbols symbols = encode(dither, values, 200, norms, levels, key);
          const ValuesOf<T> drawn = decode(dither, symbols, 200, norms, levels);
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

TEST_CASE_TEMPLATE("blocks of zeros and zeros in blocks stay zero", T, float, double) {
  for (const Kernels* level : available_kernels()) {
    ValuesOf<T> values(300);
    values[50] = T{-0.0};
    values[299] = std::numeric_limits<T>::denorm_min();
    const ValuesOf<T> norms = block_norms(*level, values, 100, 2.0);
    CHECK(norms[0] == 0);
    for (const bool is_natural : {false, true}) {
      const Dither dither = dither_of<T>(*level, is_natural);
      const Symbols symbols = encode(dither, values, 100, norms, 4, 9);
      CHECK(std::count(symbols.begin(), symbols.end(), 4) == 299);
      CHECK(decode(dither, symbols, 100, norms, 4) == values);
    }
  }
}

TEST_CASE_TEMPLATE("nearest multiples are those of plain arithmetic, equal at every level", T,
                   float, double) {
  constexpr std::size_t kCount = 3000, kBlock = 7;
  ValuesOf<T> values = random_values<T>(kCount, 4);
  std::fill_n(values.begin(), kBlock, T{0});
  values[kBlock] = std::numeric_limits<T>::max();
  values[2 * kBlock] = std::numeric_limits<T>::denorm_min();
  for (const std::uint32_t levels : {1u, 7u, 127u}) {
    for (const Kernels* level : available_kernels()) {
      const VectorKernels<T>& table = level->compress.of<T>();
      ValuesOf<T> steps((kCount + kBlock - 1) / kBlock), decoded(kCount);
      Symbols symbols(kCount);
      table.nearest_multiples(values.data(), kCount, kBlock, levels, steps.data(), symbols.data());
      table.multiples(symbols.data(), kCount, kBlock, steps.data(), levels, decoded.data());
      for (std::size_t i = 0; i < kCount; ++i) {
        const T step = steps[i / kBlock];
        REQUIRE(symbols[i] <= 2 * levels);
        REQUIRE(std::isfinite(decoded[i]));
        REQUIRE(decoded[i] == (T(symbols[i]) - T(levels)) * step);
        const T most = std::min(T(levels), std::floor(std::numeric_limits<T>::max() / step));
        const T expected = std::clamp(std::nearbyint(values[i] / step), -most, most);
        REQUIRE(decoded[i] == expected * step);
      }
      for (std::size_t first = 0; first < kCount; first += kBlock) {
        T largest = 0;
        for (std::size_t i = first; i < std::min(kCount, first + kBlock); ++i) {
          largest = std::max(largest, std::fabs(values[i]));
        }
        // No level too few, but for the last one that numbers have; and no smaller step would do.
        const T step = steps[first / kBlock];
        if (step < std::ldexp(T{1}, std::numeric_limits<T>::max_exponent - 1)) {
          REQUIRE(std::nearbyint(largest / step) <= T(levels));
        }
        if (step > std::numeric_limits<T>::min()) {
          REQUIRE(std::nearbyint(largest / (step / 2)) > T(levels));
        }
      }
    }
  }
}

}  // namespace compress_dither_test
