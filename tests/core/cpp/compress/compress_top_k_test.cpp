// Top-k of spans, and error feedback with what it keeps: the largest are sent, and the rest is
// exact.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/bitmap.hpp"
#include "compress/largest.hpp"
#include "compress/marked.hpp"
#include "compress/positions.hpp"
#include "compress_values.hpp"
#include "kernels/kernels.hpp"
#include "random.hpp"

namespace compress_top_k_test {

using namespace sparsewire;
using namespace sparsewire::test;

template <typename T>
struct Kept {
  std::vector<std::uint64_t> bitmap;
  ValuesOf<T> values;

  Marked<T> marked() const { return {bitmap.data(), values.data()}; }
};

template <typename T>
Kept<T> largest(ValuesOf<T>& values, std::size_t span, std::size_t k, const T* added = nullptr) {
  const Spans spans{values.size(), span, k};
  Kept<T> kept{std::vector<std::uint64_t>(bitmap_words(values.size()), ~std::uint64_t{0}),
               ValuesOf<T>(spans.most())};
  const std::size_t count =
      top_k_of_spans(spans, values.data(), added, kept.bitmap.data(), kept.values.data());
  REQUIRE(count <= spans.most());
  kept.values.resize(count);
  return kept;
}

// What is kept at its places, zeros elsewhere.
template <typename T>
ValuesOf<T> spread(const Kept<T>& kept, std::size_t count) {
  ValuesOf<T> values(count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (test_bit(kept.bitmap.data(), i)) values[i] = kept.values[next++];
  }
  REQUIRE(next == kept.values.size());
  return values;
}

template <typename T>
ValuesOf<T> reference(const ValuesOf<T>& values, std::size_t span, std::size_t k) {
  ValuesOf<T> kept(values.size());
  for (std::size_t first = 0; first < values.size(); first += span) {
    std::vector<std::size_t> order(std::min(span, values.size() - first));
    std::iota(order.begin(), order.end(), first);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::fabs(values[a]) > std::fabs(values[b]);
    });
    order.resize(std::min(k, order.size()));
    for (const std::size_t i : order) kept[i] = values[i];
  }
  return kept;
}

template <typename T>
ValuesOf<T> with_ties(std::size_t count) {
  std::mt19937 generator(3);
  ValuesOf<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<int>(generator() % 9) - 4);
  return values;
}

TEST_CASE_TEMPLATE("the largest of each span are kept, of equal ones the first", T, float, double) {
  for (const std::size_t count : {1u, 15u, 64u, 511u, 513u, 3000u}) {
    for (ValuesOf<T> values : {with_ties<T>(count), random_values<T>(count, 5)}) {
      for (const std::size_t span : {1u, 7u, 64u, 100u, 512u, 70000u}) {
        for (const std::size_t k : {1u, 4u, 16u, 17u, 300u}) {
          if (k > span) continue;
          for (const Kernels* level : available_kernels()) {
            REQUIRE(select_kernels(level->level));
            REQUIRE(spread(largest<T>(values, span, k), count) == reference(values, span, k));
          }
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("zeros are not kept, whatever their sign", T, float, double) {
  ValuesOf<T> values(1000, T{-0.0});
  CHECK(largest<T>(values, 64, 4).values.empty());
  values[70] = std::numeric_limits<T>::denorm_min();
  CHECK(largest<T>(values, 64, 4).values == ValuesOf<T>{values[70]});
}

TEST_CASE("what is not finite is larger than all else") {
  Values values(512, std::numeric_limits<float>::max());
  values[400] = std::numeric_limits<float>::infinity();
  CHECK(largest<float>(values, 512, 1).values[0] == values[400]);
  values[300] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(largest<float>(values, 512, 1).values[0]));
}

TEST_CASE("a sum is made in place, and its largest are kept") {
  const Values gradient = random_values(5000, 1), owed = random_values(5000, 2);
  Values sum(5000), expected(5000);
  std::transform(gradient.begin(), gradient.end(), owed.begin(), expected.begin(), std::plus<>());
  sum = gradient;
  const Kept<float> kept = largest<float>(sum, 300, 5, owed.data());
  CHECK(sum == expected);
  CHECK(spread(kept, sum.size()) == reference(expected, 300, 5));
}

// The blocks that were picked at random, of a vector of random values.
template <typename T>
Kept<T> some_blocks(const Cut& cut, unsigned seed) {
  const ValuesOf<T> values = random_values<T>(cut.count, seed);
  std::mt19937 random(seed);
  Kept<T> kept{std::vector<std::uint64_t>(bitmap_words(cut.blocks())), {}};
  for (std::size_t block = 0; block < cut.blocks(); ++block) {
    if (random() % 3 != 0) continue;
    set_bit(kept.bitmap.data(), block);
    const auto* const first = values.data() + block * cut.block;
    kept.values.insert(kept.values.end(), first, first + cut.length(block));
  }
  return kept;
}

template <typename T>
ValuesOf<T> spread(const Kept<T>& kept, const Cut& cut) {
  ValuesOf<T> values(cut.count);
  const T* next = kept.values.data();
  for (std::size_t block = 0; block < cut.blocks(); ++block) {
    if (!test_bit(kept.bitmap.data(), block)) continue;
    std::copy_n(next, cut.length(block), values.data() + block * cut.block);
    next += cut.length(block);
  }
  return values;
}

constexpr Cut kCuts[] = {{1, 1},       {63, 1},      {64, 1},      {4097, 1},     {10'000, 1},
                         {1, 256},     {255, 256},   {257, 256},   {1000, 7},     {70'001, 8},
                         {70'001, 64}, {70'001, 65}, {9000, 9000}, {20'000, 5000}};

TEST_CASE_TEMPLATE("a mean is added up in the order of the vectors", T, float, double) {
  for (const Cut& cut : kCuts) {
    for (const std::size_t vectors : {1u, 2u, 5u}) {
      std::vector<Kept<T>> each;
      std::vector<Marked<T>> marked;
      ValuesOf<T> expected(cut.count);
      for (std::size_t i = 0; i < vectors; ++i) {
        each.push_back(some_blocks<T>(cut, static_cast<unsigned>(i)));
        const ValuesOf<T> sent = spread(each.back(), cut);
        for (std::size_t k = 0; k < cut.count; ++k) expected[k] += sent[k];
      }
      for (const Kept<T>& one : each) marked.push_back(one.marked());
      for (T& value : expected) value /= static_cast<T>(vectors);
      Kept<T> mean{std::vector<std::uint64_t>(bitmap_words(cut.blocks())), ValuesOf<T>(cut.count)};
      mean.values.resize(mean_of_marked<T>(marked, cut, mean.bitmap.data(), mean.values.data()));
      CHECK(spread(mean, cut) == expected);
    }
  }
}

TEST_CASE_TEMPLATE("what was not sent is owed, to the last bit", T, float, double) {
  for (const Cut& cut : kCuts) {
    CAPTURE(cut.count);
    CAPTURE(cut.block);
    ValuesOf<T> gradient = random_values<T>(cut.count, 1);
    const ValuesOf<T> before = gradient;
    const Kept<T> own = some_blocks<T>(cut, 2), mean = some_blocks<T>(cut, 3);
    ValuesOf<T> residual(cut.count, T{7});
    feed_back(gradient.data(), residual.data(), cut, own.marked(), mean.marked());
    CHECK(gradient == spread(mean, cut));
    const ValuesOf<T> sent = spread(own, cut);
    bool exact = true;
    for (std::size_t i = 0; i < cut.count; ++i) exact &= residual[i] == before[i] - sent[i];
    CHECK(exact);
  }
}

TEST_CASE_TEMPLATE("a sum is measured as it is made", T, float, double) {
  for (const Cut& cut : kCuts) {
    ValuesOf<T> values = random_values<T>(cut.count, 1);
    const ValuesOf<T> added = random_values<T>(cut.count, 2);
    ValuesOf<T> expected = values, norms(cut.blocks()), expected_norms(cut.blocks());
    for (std::size_t i = 0; i < cut.count; ++i) expected[i] += added[i];
    kernels().compress.of<T>().norms(expected.data(), cut.count, cut.block, 2,
                                     expected_norms.data());
    add_and_measure(values.data(), added.data(), cut, norms.data());
    CHECK(values == expected);
    CHECK(norms == expected_norms);
  }
}

}  // namespace compress_top_k_test
