// DIANA's step in one pass has the bits of its steps one after another.
#include "compress/leveled.hpp"

#include <doctest/doctest.h>

#include <cstdint>
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

}  // namespace leveled_test
