// Stripes: they are dealt to the columns once each, and evenly, wherever the indices cluster.
#include "proto/sparse/stripes.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "random.hpp"

namespace stripes_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Stripes;

constexpr std::uint64_t kBlock = 256;

Stripes stripes_of(std::uint64_t columns) { return Stripes({.columns = columns}); }

TEST_CASE("every stripe has one group and column, and finds back") {
  for (std::uint64_t columns = 1; columns <= 40; ++columns) {
    CAPTURE(columns);
    const Stripes stripes = stripes_of(columns);
    for (const std::uint64_t far : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
      std::set<std::pair<std::uint64_t, std::uint64_t>> places;
      const std::uint64_t first = far / columns * columns;
      for (std::uint64_t stripe = first; stripe < first + 500 * columns; ++stripe) {
        const std::uint64_t group = stripes.group(stripe);
        const std::uint64_t column = stripes.column(stripe, group);
        REQUIRE(group == stripe / columns);
        REQUIRE(column < columns);
        REQUIRE(places.emplace(group, column).second);
        REQUIRE(stripes.stripe(group, column) == stripe);
      }
    }
  }
}

// The largest load of a column over the mean.
template <typename Positions>
double imbalance(const Positions& positions, std::uint64_t columns) {
  const Stripes stripes = stripes_of(columns);
  std::vector<std::uint64_t> loads(columns);
  std::uint64_t total = 0;
  for (const std::uint64_t position : positions) {
    const std::uint64_t stripe = position / kBlock;
    ++loads[stripes.column(stripe, stripes.group(stripe))];
    ++total;
  }
  return static_cast<double>(*std::ranges::max_element(loads) * columns) /
         static_cast<double>(total);
}

// Distinct draws from a power law by the inverse of its distribution, the most frequent first.
std::vector<std::uint64_t> zipf_positions(double exponent, std::uint64_t length,
                                          std::uint64_t distinct, Random& random) {
  const double power = 1 - exponent;
  const double tail = std::pow(static_cast<double>(length), power);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::set<std::uint64_t> drawn;
  while (drawn.size() < distinct) {
    const double value = std::pow(1 - uniform(random) * (1 - tail), 1 / power);
    drawn.insert(std::min(length - 1, static_cast<std::uint64_t>(value) - 1));
  }
  return {drawn.begin(), drawn.end()};
}

TEST_CASE("a power law loads all columns alike") {
  Random random(20240611);
  const auto positions = zipf_positions(1.1, 25'000'000, 250'000, random);
  for (std::uint64_t columns = 2; columns <= 16; ++columns) {
    CAPTURE(columns);
    CHECK(imbalance(positions, columns) <= 1.2);
  }
}

TEST_CASE("regular strides load all columns alike") {
  for (std::uint64_t columns = 2; columns <= 16; ++columns) {
    CAPTURE(columns);
    for (const std::uint64_t stride :
         {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{100}, kBlock - 1, kBlock, kBlock + 1,
          columns, kBlock * columns, kBlock * (columns + 1), kBlock * columns * 2,
          std::uint64_t{1000}, std::uint64_t{1024}, std::uint64_t{4096}, std::uint64_t{65'536},
          std::uint64_t{100'000}, std::uint64_t{1} << 20, std::uint64_t{1} << 25}) {
      CAPTURE(stride);
      std::vector<std::uint64_t> positions(100'000);
      for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = i * stride;
      CHECK(imbalance(positions, columns) <= 1.2);
    }
  }
}

TEST_CASE("dense stretches load all columns alike") {
  Random random(7);
  for (std::uint64_t columns = 2; columns <= 16; ++columns) {
    CAPTURE(columns);
    std::vector<std::uint64_t> positions(columns * 50 * kBlock);
    std::iota(positions.begin(), positions.end(), below(1'000'000'000, random));
    CHECK(imbalance(positions, columns) <= 1.2);
  }
}

}  // namespace stripes_test
