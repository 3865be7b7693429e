// DIANA's differences, and its step, have the same bits in one pass as in one for each of their
// parts.
#include "compress/leveled.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernels.hpp"
#include "random.hpp"

namespace leveled_test {

using namespace sparsewire;
using namespace sparsewire::test;

template <typename T>
using Values = std::vector<T>;

constexpr std::uint32_t kLevels = 7;

template <typename T>
Values<T> random_values(std::size_t count, Random& random) {
  Values<T> values(count);
  for (T& value : values) value = static_cast<T>(below(2001, random)) / 1000 - 1;
  return values;
}

template <typename T>
void check(const Cut& cut, std::size_t ranks, ValuesOfLevels<T> values_of, Random& random) {
  std::vector<std::vector<std::uint8_t>> symbols(ranks, std::vector<std::uint8_t>(cut.count));
  std::vector<Values<T>> scales;
  std::vector<Leveled<T>> sent;
  for (auto& each : symbols) {
    for (auto& symbol : each) {
      symbol = static_cast<std::uint8_t>(below(2 * kLevels + 1, random));
    }
    scales.push_back(random_values<T>(cut.blocks(), random));
    for (T& scale : scales.back()) scale = scale < 0 ? -scale : scale;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    sent.push_back({symbols[rank].data(), scales[rank].data()});
  }
  const std::size_t own = below(ranks, random);
  const T rate = T{1} / 3;
  Values<T> shift = random_values<T>(cut.count, random);
  Values<T> mean_shift = random_values<T>(cut.count, random);
  Values<T> expected_shift = shift, expected_mean = mean_shift;
  Values<T> expected_gradient(cut.count), gradient(cut.count), sum(cut.count), values(cut.count);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    values_of(sent[rank].symbols, cut.count, cut.block, sent[rank].scales, kLevels, values.data());
    for (std::size_t i = 0; i < cut.count; ++i) {
      sum[i] += values[i];
      if (rank == own) expected_shift[i] += values[i] * rate;
    }
  }
  for (std::size_t i = 0; i < cut.count; ++i) {
    const T mean = sum[i] / static_cast<T>(ranks);
    expected_gradient[i] = expected_mean[i] + mean;
    expected_mean[i] += mean * rate;
  }
  const Shifts<T> shifts{shift.data(), mean_shift.data(), gradient.data()};
  follow<T>(sent, own, cut, kLevels, values_of, rate, shifts);
  CHECK(gradient == expected_gradient);
  CHECK(shift == expected_shift);
  CHECK(mean_shift == expected_mean);
}

TEST_CASE_TEMPLATE("one pass makes the bits of many", T, float, double) {
  Random random(1);
  const auto& table = kernels().compress.of<T>();
  for (const std::size_t count : {1u, 511u, 512u, 2048u, 2049u, 10000u}) {
    for (const std::size_t block : {1u, 3u, 512u, 2048u, 5000u, 100000u}) {
      for (const std::size_t ranks : {1u, 2u, 3u}) {
        CAPTURE(count);
        CAPTURE(block);
        check<T>({count, block}, ranks, table.undither, random);
        check<T>({count, block}, ranks, table.natural_undither, random);
      }
    }
  }
}

TEST_CASE_TEMPLATE("levels of a difference are those of what is made", T, float, double) {
  Random random(2);
  const auto& table = kernels().compress.of<T>();
  for (const std::size_t count : {1u, 512u, 10000u, 140000u}) {
    for (const std::size_t block : {1u, 7u, 512u, 1000u, 2048u}) {
      CAPTURE(count);
      CAPTURE(block);
      const Cut cut{count, block};
      const Values<T> x = random_values<T>(count, random), y = random_values<T>(count, random);
      Values<T> made(count), scales(cut.blocks()), norms(cut.blocks());
      std::vector<std::uint8_t> symbols(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) made[i] = x[i] - y[i];
      table.norms(made.data(), count, block, 2, norms.data());
      for (const auto levels_of : {table.dither, table.natural_dither}) {
        levels_of(made.data(), count, block, norms.data(), kLevels, 42, 0, expected.data());
        REQUIRE(difference_levels<T>({x.data(), y.data()}, cut, kLevels, 42, levels_of,
                                     {scales.data(), symbols.data()}));
        CHECK(scales == norms);
        CHECK(symbols == expected);
      }
    }
  }
}

TEST_CASE_TEMPLATE("norms that are not usual, and long blocks, are left to others", T, float,
                   double) {
  const auto& table = kernels().compress.of<T>();
  const auto takes = [&](T value, std::size_t block) {
    const Values<T> zeros(5000);
    Values<T> x(zeros), scales(5000);
    std::vector<std::uint8_t> symbols(x.size());
    x[4999] = value;
    return difference_levels<T>({x.data(), zeros.data()}, {x.size(), block}, kLevels, 1,
                                table.dither, {scales.data(), symbols.data()});
  };
  CHECK(takes(0, 512));
  CHECK(takes(1, 2048));
  CHECK_FALSE(takes(1, 2049));
  CHECK_FALSE(takes(std::numeric_limits<T>::denorm_min(), 512));
  CHECK_FALSE(takes(std::numeric_limits<T>::infinity(), 512));
  CHECK_FALSE(takes(std::numeric_limits<T>::quiet_NaN(), 512));
}

}  // namespace leveled_test
