// Coins, rand-k, top-k and the code for positions: exact where they must be, uniform where they are
// random, and short.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/bitmap.hpp"
#include "compress/largest.hpp"
#include "compress/positions.hpp"
#include "compress_values.hpp"
#include "random.hpp"

namespace compress_positions_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Bitmap = std::vector<std::uint64_t>;

Bitmap drawn(std::size_t count, std::size_t k, std::uint64_t key) {
  Bitmap bitmap(bitmap_words(count), ~std::uint64_t{0});
  rand_k(count, k, key, bitmap.data());
  return bitmap;
}

std::size_t set_in(const Bitmap& bitmap) { return count_set(bitmap.data(), bitmap.size() * 64); }

template <typename T>
Bitmap reference_top_k(const ValuesOf<T>& values, std::size_t k) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  Bitmap bitmap(bitmap_words(values.size()));
  for (std::size_t i = 0; i < k; ++i) bitmap[order[i] / 64] |= std::uint64_t{1} << (order[i] % 64);
  return bitmap;
}

double log2_binomial(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0);
}

Buffer encode(const Bitmap& bitmap, std::size_t count, std::size_t k) {
  Buffer code(positions_bound(count, k));
  const std::size_t size = encode_positions(bitmap.data(), count, k, code.data());
  REQUIRE(size <= code.size());
  return Buffer(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(size));
}

bool decodes(const Buffer& code, std::size_t count, std::size_t k, Bitmap& bitmap) {
  static const std::byte kNothing{};  // The address of no bytes would look like an error.
  const std::byte* const begin = code.empty() ? &kNothing : code.data();
  const std::byte* const end = begin + code.size();
  return decode_positions(begin, end, count, k, bitmap.data()) == end;
}

TEST_CASE("coins fall alike at every level, as often as they should") {
  constexpr std::size_t kCount = 300000;
  for (const double probability : {0.0, 0.001, 0.3, 0.5, 1.0}) {
    Bitmap whole(bitmap_words(kCount));
    const std::size_t set = kernels().compress.bernoulli(kCount, probability, 5, whole.data());
    CHECK(set == set_in(whole));
    const double spread = std::sqrt(kCount * probability * (1 - probability));
    CHECK(std::fabs(static_cast<double>(set) - kCount * probability) <= 6 * spread);
    for (const Kernels* level : available_kernels()) {
      Bitmap again(whole.size(), ~std::uint64_t{0});
      level->compress.bernoulli(kCount, probability, 5, again.data());
      CHECK(again == whole);
    }
  }
}

TEST_CASE("values that reach a magnitude are marked") {
  for (const std::size_t count : {1u, 64u, 511u, 513u, 2000u}) {
    const Values values = random_values(count, 1);
    for (const float bound : {0.0f, 0.01f, 1.0f, std::numeric_limits<float>::infinity()}) {
      for (const Kernels* level : available_kernels()) {
        Bitmap bitmap(bitmap_words(count), ~std::uint64_t{0});
        const std::size_t set =
            level->compress.singles.reaching(values.data(), count, bound, bitmap.data());
        CHECK(set == set_in(bitmap));
        for (std::size_t i = 0; i < count; ++i) {
          REQUIRE(test_bit(bitmap.data(), i) == (std::fabs(values[i]) >= bound));
        }
      }
    }
  }
}

TEST_CASE("rand-k draws exactly k, the same for the same key") {
  for (const std::size_t count : {1u, 63u, 64u, 65u, 1000u, 4096u, 100000u}) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, count / 3, count / 2 + 1,
                                count - count / 10, count - count / 100, count}) {
      const Bitmap bitmap = drawn(count, std::min(k, count), 3);
      CHECK(set_in(bitmap) == std::min(k, count));
      CHECK(count_set(bitmap.data(), count) == std::min(k, count));
      CHECK(bitmap == drawn(count, std::min(k, count), 3));
    }
  }
  CHECK(drawn(1000, 300, 1) != drawn(1000, 300, 2));
}

TEST_CASE("every set of k positions is as likely as any other") {
  constexpr int kDraws = 70000;
  for (const std::size_t k : {1u, 3u, 4u, 6u}) {
    std::map<std::uint64_t, int> seen;
    for (std::uint64_t key = 0; key < kDraws; ++key) ++seen[drawn(7, k, key)[0]];
    const double sets = std::round(std::exp2(log2_binomial(7, static_cast<double>(k))));
    REQUIRE(static_cast<double>(seen.size()) == sets);
    const double expected = kDraws / sets;
    double chi_square = 0;
    for (const auto& [set, times] : seen) {
      chi_square += (times - expected) * (times - expected) / expected;
    }
    CHECK(std::fabs(deviation(chi_square, sets - 1)) < 6);
  }
}

TEST_CASE("every position and every pair is as likely as any other where many are drawn") {
  constexpr std::size_t kCount = 5000;
  constexpr int kDraws = 4000;
  for (const std::size_t k : {std::size_t{500}, std::size_t{2500}, std::size_t{4500}}) {
    std::vector<double> times(kCount), with_next(kCount);
    for (std::uint64_t key = 0; key < kDraws; ++key) {
      const Bitmap bitmap = drawn(kCount, k, key);
      REQUIRE(set_in(bitmap) == k);
      for (std::size_t i = 0; i < kCount; ++i) {
        const bool is_set = test_bit(bitmap.data(), i);
        times[i] += is_set;
        with_next[i] += is_set && test_bit(bitmap.data(), (i + 1) % kCount);
      }
    }
    const double share = static_cast<double>(k) / kCount;
    const double pairs = share * (static_cast<double>(k) - 1) / (kCount - 1);
    double chi_square = 0, pair_chi_square = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      chi_square += std::pow(times[i] - kDraws * share, 2) / (kDraws * share * (1 - share));
      pair_chi_square +=
          std::pow(with_next[i] - kDraws * pairs, 2) / (kDraws * pairs * (1 - pairs));
    }
    CHECK(std::fabs(deviation(chi_square, kCount)) < 6);
    CHECK(std::fabs(deviation(pair_chi_square, kCount)) < 8);  // Neighbouring pairs share one.
  }
}

TEST_CASE_TEMPLATE("top-k keeps the largest, of equal ones the first", T, float, double) {
  std::mt19937 generator(4);
  for (const std::size_t count : {1u, 65u, 1000u, 5001u}) {
    ValuesOf<T> ties(count);
    for (T& value : ties) value = static_cast<T>(static_cast<int>(generator() % 7) - 3);
    ValuesOf<T> wide = random_values<T>(count, 5);
    for (std::size_t i = 0; i < count; i += 10) wide[i] = std::ldexp(wide[i], -120);
    ValuesOf<T> close(count);
    for (T& value : close)
      value = 1 + std::ldexp(T(generator() % 3000), 1 - std::numeric_limits<T>::digits);
    for (const ValuesOf<T>& values :
         {ties, wide, close, ValuesOf<T>(count, T{-2}), ValuesOf<T>(count)}) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, count / 10, count / 2, count}) {
        for (const Kernels* level : available_kernels()) {
          REQUIRE(select_kernels(level->level));
          Bitmap bitmap(bitmap_words(count), ~std::uint64_t{0});
          top_k(values.data(), count, k, bitmap.data());
          REQUIRE(bitmap == reference_top_k(values, k));
        }
      }
    }
  }
}

TEST_CASE("positions come back, in at most 5% more than the logarithm of the number of such sets") {
  for (const std::size_t count : {1u, 64u, 100u, 4096u, 1000003u}) {
    for (const double share : {0.0, 1e-5, 1e-3, 0.01, 0.1, 0.25, 0.4, 0.5, 0.7, 0.99, 1.0}) {
      const auto k = static_cast<std::size_t>(std::ceil(share * static_cast<double>(count)));
      const Bitmap bitmap = drawn(count, k, 6);
      const Buffer code = encode(bitmap, count, k);
      Bitmap decoded(bitmap.size(), ~std::uint64_t{0});
      CHECK(decodes(code, count, k, decoded));
      CHECK(decoded == bitmap);
      if (count < 4096) continue;
      const double bits = log2_binomial(static_cast<double>(count), static_cast<double>(k));
      CHECK(8 * static_cast<double>(code.size()) < 1.05 * bits + 16);
    }
  }
}

TEST_CASE("positions at the ends and in clusters stay within the bound") {
  constexpr std::size_t kCount = 100000;
  for (const std::size_t k : {1u, 10u, 3000u, 60000u}) {
    for (const std::size_t first : {std::size_t{0}, kCount - k}) {
      Bitmap bitmap(bitmap_words(kCount));
      set_range(bitmap.data(), first, k);
      Bitmap decoded(bitmap.size());
      CHECK(decodes(encode(bitmap, kCount, k), kCount, k, decoded));
      CHECK(decoded == bitmap);
    }
  }
}

TEST_CASE("whatever the bytes are, positions stay inside and are as many as they should be") {
  Random random(7);
  int accepted = 0;
  for (int run = 0; run < 20000; ++run) {
    const std::size_t count = 1 + below(3000, random);
    const std::size_t k = below(count + 1, random);
    const Buffer code = encode(drawn(count, k, random()), count, k);
    const Buffer bytes =
        one_in(2, random) ? mutated(code, random) : random_bytes(below(500, random), random);
    Bitmap decoded(bitmap_words(count));
    if (!decodes(bytes, count, k, decoded)) continue;
    ++accepted;
    REQUIRE(set_in(decoded) == k);
    REQUIRE(count_set(decoded.data(), count) == k);
  }
  CHECK(accepted > 0);
}

TEST_CASE("a code of positions that is cut short or goes on is refused") {
  const Bitmap bitmap = drawn(5000, 500, 8);
  const Buffer code = encode(bitmap, 5000, 500);
  Bitmap decoded(bitmap.size());
  for (std::size_t cut = 1; cut <= code.size(); ++cut) {
    const Buffer part(code.begin(), code.end() - static_cast<std::ptrdiff_t>(cut));
    REQUIRE_FALSE(decodes(part, 5000, 500, decoded));
  }
  Buffer longer = code;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decodes(longer, 5000, 500, decoded));
}

}  // namespace compress_positions_test
