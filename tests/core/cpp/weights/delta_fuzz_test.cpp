// Decoders of weights get damaged codes and noise: they read nothing outside, take memory in
// proportion to the chunk, and agree. A few inputs are tried; as many as are wanted with
// SPARSEWIRE_INPUTS=10000000 in the environment.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>

#include "allocations.hpp"
#include "weights/changes.hpp"
#include "weights/numbers.hpp"
#include "weights/prepared.hpp"

namespace delta_fuzz_test {

using namespace sparsewire;
using namespace sparsewire::weights;
using test::Allocations;

using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;

std::uint64_t inputs() {
  const char* const wanted = std::getenv("SPARSEWIRE_INPUTS");
  return wanted ? std::stoull(wanted) : 100'000;
}

// Chunks are small, so that many inputs take minutes.
constexpr std::size_t kCountMax = 300;
// What a decoder takes beside this much for each element: tables of the entropy coder.
constexpr std::size_t kBytesForElement = 64;
constexpr std::size_t kBytesBeside = 1 << 16;

struct Input {
  Elements elements;
  std::size_t count;
  Memory base;
  Memory code;
};

std::byte any_byte(Random& random) { return static_cast<std::byte>(random()); }

// A valid code: a share of the elements changed, by little or to anywhere.
Input valid(Random& random) {
  const std::size_t width = std::size_t{1} << random() % 4;
  Input input{
      {width, static_cast<Numbers>(random() % kNumbersCount)}, random() % kCountMax, {}, {}};
  input.base.resize(width * input.count);
  for (std::byte& byte : input.base) byte = any_byte(random);
  Memory fresh = input.base;
  const std::uint64_t one_in = std::array<std::uint64_t, 4>{1, 2, 10, 100}[random() % 4];
  const bool is_step = random() % 2;
  const std::uint64_t values = random() % 2 ? 256 : 3;
  for (std::size_t i = 0; i < fresh.size(); i += is_step ? width : 1) {
    if (random() % one_in == 0) fresh[i] = static_cast<std::byte>(random() % values);
  }
  encode_delta(input.elements, input.base.data(), fresh.data(), input.count, input.code);
  return input;
}

void flip(Memory& code, Random& random) {
  if (!code.empty()) code[random() % code.size()] ^= static_cast<std::byte>(1u << random() % 8);
}

void set(Memory& code, Random& random) {
  constexpr std::array<std::uint8_t, 4> kEnds{0, 1, 0x7f, 0xff};
  if (!code.empty()) code[random() % code.size()] = static_cast<std::byte>(kEnds[random() % 4]);
}

void cut(Memory& code, Random& random) { code.resize(random() % (code.size() + 1)); }

void lengthen(Memory& code, Random& random) { code.push_back(any_byte(random)); }

// A piece of the code over another one.
void splice(Memory& code, Random& random) {
  if (code.empty()) return;
  const std::size_t from = random() % code.size();
  const std::size_t to = random() % code.size();
  for (std::size_t i = 0; i < 8 && std::max(from, to) + i < code.size(); ++i) {
    code[to + i] = code[from + i];
  }
}

void noise(Memory& code, Random& random) {
  code.resize(random() % 60);
  for (std::byte& byte : code) byte = any_byte(random);
  // Most noise ends at the form, so it gets one that there is.
  if (!code.empty()) code[0] = static_cast<std::byte>(random() % kFormCount);
}

void damage(Memory& code, Random& random) {
  constexpr std::array kWays{flip, flip, set, set, cut, lengthen, splice, noise};
  for (std::uint64_t times = random() % 3 + 1; times > 0; --times) {
    kWays[random() % kWays.size()](code, random);
  }
}

// In memory of its own size, so that a sanitizer sees what is read behind the end.
Memory exact(const Memory& code) {
  Memory copy(code.begin(), code.end());
  copy.shrink_to_fit();
  return copy;
}

// Whether f kept its memory in bounds.
template <typename F>
void check_memory(std::size_t count, F f) {
  const std::size_t before = Allocations::held();
  Allocations::forget_peak();
  f();
  REQUIRE(Allocations::peak() - before <= kBytesForElement * count + kBytesBeside);
}

// Counts the codes that are taken.
bool check(const Input& input) {
  const Memory code = exact(input.code);
  Memory applied = input.base;
  Memory written = input.base;
  Memory prepared;
  bool is_code = false;
  check_memory(input.count, [&] { is_code = is_delta(input.elements, code, input.count); });
  REQUIRE(apply_delta(input.elements, code, applied.data(), input.count) == is_code);
  REQUIRE(prepare_delta(input.elements, code, input.base.data(), input.count, prepared) == is_code);
  if (is_code) {
    REQUIRE(write_prepared(input.elements.width, prepared, written.data(), input.count));
  }
  REQUIRE(applied == written);
  return is_code;
}

template <typename Number>
void check_numbers(const Memory& code, std::size_t count) {
  check_memory(count, [&] {
    std::vector<Number> numbers;
    const std::byte* const end = code.data() + code.size();
    const std::byte* const found = decode_numbers(code.data(), end, count, numbers);
    REQUIRE((!found || (found <= end && numbers.size() == count)));
  });
}

TEST_CASE("whatever the bytes are, a chunk's code is applied or refused") {
  Random random(1);
  Input input = valid(random);
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    // Some damage of one code, and now and then the next.
    if (i % 16 == 0) input = valid(random);
    Input damaged = input;
    if (i % 16 != 0) damage(damaged.code, random);
    taken += check(damaged);
  }
  CHECK(taken > inputs() / 16);
  CHECK(taken < inputs() * 3 / 4);
}

TEST_CASE("whatever the bytes are, a list of numbers is read or refused") {
  Random random(2);
  for (std::uint64_t i = 0; i < inputs() / 4; ++i) {
    std::vector<std::uint64_t> numbers(random() % kCountMax);
    const std::uint64_t bits = random() % 64;
    for (std::uint64_t& number : numbers) number = random() >> bits;
    Memory code;
    encode_numbers(numbers, code);
    damage(code, random);
    check_numbers<std::uint32_t>(exact(code), numbers.size());
    check_numbers<std::uint64_t>(exact(code), numbers.size());
  }
}

TEST_CASE("whatever the bytes are, a prepared change is written or refused") {
  Random random(3);
  for (std::uint64_t i = 0; i < inputs() / 4; ++i) {
    const Input input = valid(random);
    Memory prepared;
    REQUIRE(prepare_delta(input.elements, input.code, input.base.data(), input.count, prepared));
    damage(prepared, random);
    Memory weights = exact(input.base);
    const Memory bytes = exact(prepared);
    if (!write_prepared(input.elements.width, bytes, weights.data(), input.count)) {
      REQUIRE(weights == input.base);
    }
  }
}

}  // namespace delta_fuzz_test
