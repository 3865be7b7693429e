// Lists of numbers come back, cost about their entropy, and are the same bytes in either width.
#include "weights/numbers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace numbers_test {

using namespace sparsewire;
using namespace sparsewire::weights;

using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;

template <typename Number>
Memory encoded(const std::vector<Number>& numbers) {
  Memory code;
  encode_numbers(numbers, code);
  return code;
}

template <typename Number>
bool decodes_to(const Memory& code, const std::vector<Number>& numbers) {
  std::vector<Number> found;
  const std::byte* const end = code.data() + code.size();
  return decode_numbers(code.data(), end, numbers.size(), found) == end && found == numbers;
}

// Numbers of all lengths up to `bits`.
template <typename Number>
std::vector<Number> numbers_up_to(unsigned bits, std::size_t count, Random& random) {
  std::vector<Number> numbers(count);
  for (Number& number : numbers) {
    number = static_cast<Number>(random() >> (64 - random() % bits - 1));
  }
  return numbers;
}

TEST_CASE("numbers of every length come back") {
  Random random(1);
  for (const std::size_t count : {1, 2, 100, 5000}) {
    for (unsigned bits = 1; bits <= 64; ++bits) {
      const auto longs = numbers_up_to<std::uint64_t>(bits, count, random);
      CHECK(decodes_to(encoded(longs), longs));
      if (bits > 32) continue;
      const auto shorts = numbers_up_to<std::uint32_t>(bits, count, random);
      CHECK(decodes_to(encoded(shorts), shorts));
    }
  }
}

TEST_CASE("ends of all classes come back, and have the same code in either width") {
  std::vector<std::uint32_t> shorts{0, 1, 15, 16, 0xffffffff};
  for (unsigned length = 4; length < 32; ++length) {
    for (std::uint32_t shown = 4; shown < 8; ++shown) {
      const std::uint32_t least = shown << (length - 2);
      shorts.insert(shorts.end(), {least - 1, least, least + 1});
    }
  }
  const std::vector<std::uint64_t> longs(shorts.begin(), shorts.end());
  CHECK(encoded(shorts) == encoded(longs));
  CHECK(decodes_to(encoded(shorts), shorts));
  CHECK(decodes_to(encoded(longs), longs));
}

TEST_CASE("a number that does not fit is refused") {
  std::vector<std::uint32_t> found;
  const Memory code = encoded(std::vector<std::uint64_t>{1, std::uint64_t{1} << 32});
  CHECK(decode_numbers(code.data(), code.data() + code.size(), 2, found) == nullptr);
}

TEST_CASE("even gaps and short lists cost no more than their entropy and some bytes") {
  Random random(3);
  for (const double mean : {1000.0, 10'000.0}) {
    for (const std::size_t count : {20, 1000}) {
      std::geometric_distribution<std::uint32_t> draws(1 / (mean + 1));
      std::vector<std::uint32_t> numbers(count);
      std::ranges::generate(numbers, [&] { return draws(random); });
      double bits = 0;
      for (const std::uint32_t number : numbers) {
        bits += std::log2(mean + 1) + number * std::log2((mean + 1) / mean);
      }
      CHECK(static_cast<double>(encoded(numbers).size()) < 1.015 * bits / 8 + 5);
    }
  }
}

TEST_CASE("a Rice code of what does not fit is refused") {
  std::vector<std::uint32_t> found;
  std::vector<std::uint64_t> longs;
  // 31 low bits, all zeros, behind a quotient of one.
  Memory fits(9);
  fits[0] = std::byte{31};
  fits[3] = std::byte{0x80};
  fits[4] = std::byte{0x02};
  CHECK(decode_numbers(fits.data(), fits.data() + 9, 1, found) != nullptr);
  CHECK(found[0] == 0x80000000);
  fits[4] = std::byte{0x04};
  CHECK(decode_numbers(fits.data(), fits.data() + 9, 1, found) == nullptr);
  CHECK(decode_numbers(fits.data(), fits.data() + 9, 1, longs) != nullptr);
  fits[0] = std::byte{32};
  CHECK(decode_numbers(fits.data(), fits.data() + 9, 1, longs) == nullptr);
}

TEST_CASE("an estimate is hardly more than the code") {
  Random random(2);
  for (const double mean : {0.5, 10.0, 1000.0, 1e6}) {
    std::geometric_distribution<std::uint32_t> draws(1 / (mean + 1));
    std::vector<std::uint32_t> numbers(100'000);
    std::ranges::generate(numbers, [&] { return draws(random); });
    const auto size = static_cast<double>(encoded(numbers).size());
    const auto estimate = static_cast<double>(estimate_numbers(numbers));
    CHECK(estimate < 1.1 * size);
    CHECK(estimate > 0.9 * size);
  }
}

}  // namespace numbers_test
