// Lists of numbers come back, cost about their entropy, and are the same bytes in either width.
#include "weights/numbers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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
