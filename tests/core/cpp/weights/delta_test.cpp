// Deltas give back every bit, are as short as the changes allow, and refuse what is no delta.
#include "weights/delta.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "weights/planes.hpp"

namespace delta_test {

using namespace sparsewire;
using namespace sparsewire::weights;

using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;

Memory random_bytes(std::size_t size, Random& random) {
  Memory bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::uint64_t element(const Memory& memory, std::size_t width, std::size_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, memory.data() + index * width, width);
  return value;
}

void set_element(Memory& memory, std::size_t width, std::size_t index, std::uint64_t value) {
  std::memcpy(memory.data() + index * width, &value, width);
}

// bfloat16 of a Gaussian weight.
std::uint64_t weight(Random& random) {
  const auto value = static_cast<float>(std::normal_distribution<double>(0, 0.02)(random));
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits >> 16;
}

// Weights of bfloat16, and a new version in which this share has moved by one or two.
std::pair<Memory, Memory> versions(std::size_t count, double share, Random& random) {
  Memory base(2 * count);
  for (std::size_t i = 0; i < count; ++i) set_element(base, 2, i, weight(random));
  Memory fresh = base;
  std::bernoulli_distribution changes(share);
  for (std::size_t i = 0; i < count; ++i) {
    if (!changes(random)) continue;
    const std::uint64_t step = random() % 8 == 0 ? 2 : 1;
    const std::uint64_t bits = element(base, 2, i);
    set_element(fresh, 2, i, random() % 2 ? bits + step : bits - step);
  }
  return {base, fresh};
}

Memory encoded(Elements elements, const Memory& base, const Memory& fresh, Encoded* how = nullptr) {
  Memory code;
  const std::size_t count = base.size() / elements.width;
  const Encoded found = encode_delta(elements, base.data(), fresh.data(), count, code);
  if (how) *how = found;
  return code;
}

void check_round_trip(Elements elements, const Memory& base, const Memory& fresh) {
  const Memory code = encoded(elements, base, fresh);
  const std::size_t count = base.size() / elements.width;
  REQUIRE(is_delta(elements, code, count));
  Memory applied = base;
  REQUIRE(apply_delta(elements, code, applied.data(), count));
  CHECK(applied == fresh);
}

const Elements kBfloat16{2, Numbers::floating};

// Of a changed element, uniform positions and signed steps of which one in eight is of two.
double entropy_bytes(double share) {
  const double position = -(std::log2(share) + (1 - share) / share * std::log2(1 - share));
  const double step = 1 - (0.125 * std::log2(0.125) + 0.875 * std::log2(0.875));
  return (position + step) / 8;
}

TEST_CASE("every bit comes back, whatever the bits and however many change") {
  Random random(1);
  for (const std::size_t width : {1, 2, 4, 8}) {
    for (const Numbers numbers : {Numbers::floating, Numbers::integer}) {
      for (const std::size_t count : {1, 2, 63, 64, 65, 5000}) {
        for (const double share : {0.0, 0.01, 0.5, 1.0}) {
          const Memory base = random_bytes(width * count, random);
          const Memory other = random_bytes(width * count, random);
          Memory fresh = base;
          std::bernoulli_distribution changes(share);
          for (std::size_t i = 0; i < count; ++i) {
            if (changes(random)) set_element(fresh, width, i, element(other, width, i));
          }
          check_round_trip({width, numbers}, base, fresh);
        }
      }
    }
  }
}

TEST_CASE("zeros with a sign, infinities, NaN and the ends of the range come back") {
  for (const Numbers numbers : {Numbers::floating, Numbers::integer}) {
    const std::uint64_t values[] = {0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7fff, 1, 0x8001};
    for (const std::uint64_t from : values) {
      for (const std::uint64_t to : values) {
        Memory base(2);
        Memory fresh(2);
        set_element(base, 2, 0, from);
        set_element(fresh, 2, 0, to);
        check_round_trip({2, numbers}, base, fresh);
      }
    }
  }
}

TEST_CASE("a change costs hardly more than its entropy") {
  Random random(2);
  for (const double share : {0.001, 0.01, 0.03}) {
    const auto [base, fresh] = versions(kDeltaChunk, share, random);
    Encoded how{};
    const Memory code = encoded(kBfloat16, base, fresh, &how);
    CHECK(how.form == Form::steps);
    const auto bytes = static_cast<double>(code.size()) / static_cast<double>(how.changed);
    CHECK(bytes < 1.03 * entropy_bytes(share) + 200.0 / static_cast<double>(how.changed));
    CHECK(bytes > 0.98 * entropy_bytes(share));
  }
}

TEST_CASE("rows that change as a whole cost no positions of their own") {
  Random random(3);
  constexpr std::size_t kRow = 64;
  const auto [base, moved] = versions(kDeltaChunk, 1.0, random);
  Memory fresh = base;
  std::size_t changed = 0;
  for (std::size_t row = 0; row < kDeltaChunk / kRow; ++row) {
    if (random() % 100 != 0) continue;
    std::copy_n(moved.begin() + static_cast<std::ptrdiff_t>(2 * kRow * row), 2 * kRow,
                fresh.begin() + static_cast<std::ptrdiff_t>(2 * kRow * row));
    changed += kRow;
  }
  const Memory code = encoded(kBfloat16, base, fresh);
  CHECK(code.size() < changed * 35 / 100);
}

TEST_CASE("nothing costs a byte, and all at once no more than the elements with their planes") {
  Random random(4);
  const auto [base, fresh] = versions(100'000, 1.0, random);
  CHECK(encoded(kBfloat16, base, base).size() == 1);
  Memory other(base.size());
  for (std::size_t i = 0; i < base.size() / 2; ++i) set_element(other, 2, i, weight(random));
  Encoded how{};
  const Memory code = encoded(kBfloat16, base, other, &how);
  CHECK(how.form == Form::whole);
  CHECK(code.size() < base.size() * 70 / 100);
  const Memory noise = random_bytes(base.size(), random);
  CHECK(encoded(kBfloat16, base, noise).size() < base.size() * 1001 / 1000);
}

TEST_CASE("values far from their base are written as they are") {
  Random random(5);
  Memory base = random_bytes(8 * 10'000, random);
  Memory fresh = base;
  for (std::size_t i = 0; i < 10'000; i += 100) set_element(fresh, 8, i, 7);
  Encoded how{};
  const Elements elements{8, Numbers::integer};
  const Memory code = encoded(elements, base, fresh, &how);
  CHECK(how.form == Form::values);
  check_round_trip(elements, base, fresh);
}

// Weights of `width` bytes: the planes of small numbers are narrow.
Memory weights_of(std::size_t width, std::size_t count, Random& random) {
  Memory memory(width * count);
  std::normal_distribution<double> draws(0, 0.02);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(draws(random));
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const auto rounded = static_cast<std::uint64_t>(static_cast<std::int64_t>(1000 * value));
    set_element(memory, width, i, width == 1 ? rounded : bits >> (8 * (4 - width)));
  }
  return memory;
}

// What all elements take, byte plane by byte plane.
std::size_t whole_size(std::size_t width, const Memory& fresh) {
  Memory code(1);
  Planes(fresh.data(), width, fresh.size() / width, nullptr).put(code);
  return code.size();
}

TEST_CASE("no share of changes costs more than all elements with their planes") {
  Random random(8);
  constexpr std::size_t kCount = 1 << 17;
  for (const std::size_t width : {1, 2, 4}) {
    for (const Numbers numbers : {Numbers::floating, Numbers::integer}) {
      for (const double share : {0.0001, 0.01, 0.1, 0.5, 0.9, 1.0}) {
        const Memory base = weights_of(width, kCount, random);
        const Memory other = weights_of(width, kCount, random);
        for (const bool is_step : {false, true}) {
          Memory fresh = base;
          std::bernoulli_distribution changes(share);
          for (std::size_t i = 0; i < kCount; ++i) {
            if (!changes(random)) continue;
            const std::uint64_t moved = element(base, width, i) + (random() % 2 ? 1 : -1);
            set_element(fresh, width, i, is_step ? moved : element(other, width, i));
          }
          const std::size_t size = encoded({width, numbers}, base, fresh).size();
          CHECK(size <= whole_size(width, fresh) * 1005 / 1000);
        }
      }
    }
  }
}

TEST_CASE("what becomes alike costs nothing, whatever it was") {
  Random random(9);
  for (const std::size_t width : {1, 2, 4, 8}) {
    const Memory base = random_bytes(width * 10'000, random);
    const Memory fresh(base.size(), std::byte{7});
    CHECK(encoded({width, Numbers::floating}, base, fresh).size() < 100);
  }
}

TEST_CASE("what is no delta is refused, and changes nothing") {
  Random random(6);
  for (const double share : {0.01, 1.0}) {
    const auto [base, fresh] = versions(2000, share, random);
    const Memory code = encoded(kBfloat16, base, fresh);
    for (std::size_t size = 0; size < code.size(); ++size) {
      Memory weights = base;
      const std::span<const std::byte> part(code.data(), size);
      CHECK_FALSE(apply_delta(kBfloat16, part, weights.data(), 2000));
      CHECK(weights == base);
    }
    Memory longer = code;
    longer.push_back(std::byte{0});
    CHECK_FALSE(is_delta(kBfloat16, longer, 2000));
    for (int round = 0; round < 3000; ++round) {
      Memory broken = code;
      for (std::uint64_t flips = random() % 4 + 1; flips > 0; --flips) {
        broken[random() % broken.size()] ^= static_cast<std::byte>(1u << random() % 8);
      }
      Memory weights = base;
      if (!apply_delta(kBfloat16, broken, weights.data(), 2000)) CHECK(weights == base);
    }
  }
}

TEST_CASE("a delta of another length is refused") {
  Random random(7);
  const auto [base, fresh] = versions(1000, 1.0, random);
  const Memory code = encoded(kBfloat16, base, fresh);
  CHECK(is_delta(kBfloat16, code, 1000));
  CHECK_FALSE(is_delta(kBfloat16, code, 999));
}

}  // namespace delta_test
