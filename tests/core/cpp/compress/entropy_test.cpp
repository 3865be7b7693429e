// The entropy code: what comes back is what went in, its size is near the entropy, and bytes that
// are no code are refused.
#include "compress/entropy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/rans.hpp"
#include "random.hpp"

namespace entropy_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Symbols = std::vector<std::uint8_t>;

// In memory of exactly the size that results, for an address sanitizer.
Buffer encode(const Symbols& symbols, std::size_t alphabet) {
  Buffer out(entropy_bound(symbols.size()));
  const auto size = entropy_encode(symbols.data(), symbols.size(), alphabet, out.data());
  REQUIRE(size.has_value());
  REQUIRE(*size <= out.size());
  return Buffer(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(*size));
}

bool decodes(const Buffer& code, std::size_t alphabet, Symbols& symbols) {
  return entropy_decode(code.data(), code.size(), alphabet, symbols.data(), symbols.size());
}

Symbols draw(const std::vector<double>& weights, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::discrete_distribution<int> distribution(weights.begin(), weights.end());
  Symbols symbols(count);
  for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(distribution(random));
  return symbols;
}

std::vector<double> ternary(double nonzero) { return {nonzero / 2, 1 - nonzero, nonzero / 2}; }

std::vector<double> bell(int levels, double width) {
  std::vector<double> weights;
  for (int level = -levels; level <= levels; ++level) {
    weights.push_back(std::exp(-level * level / (2 * width * width)));
  }
  return weights;
}

double entropy_bytes(const Symbols& symbols) {
  const Counts counts = count_symbols(symbols.data(), symbols.size());
  double bits = 0;
  for (const double count : counts) {
    if (count > 0) bits -= count * std::log2(count / static_cast<double>(symbols.size()));
  }
  return bits / 8;
}

std::uint64_t fnv1a(const Buffer& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

TEST_CASE("symbols come back, for any alphabet and length") {
  const std::size_t lengths[] = {0,
                                 1,
                                 2,
                                 7,
                                 63,
                                 64,
                                 65,
                                 100,
                                 4095,
                                 4096,
                                 65535,
                                 65536,
                                 65543,
                                 65567,
                                 kEntropyBlock,
                                 kEntropyBlock + 3};
  for (const std::size_t alphabet : {1u, 2u, 3u, 4u, 5u, 16u, 255u, 256u}) {
    std::vector<double> weights(alphabet);
    for (std::size_t s = 0; s < alphabet; ++s) weights[s] = 1.0 / static_cast<double>(1 + s * s);
    for (const std::size_t length : lengths) {
      const Symbols symbols = draw(weights, length, alphabet + length);
      Symbols decoded(length, 0xee);
      CHECK(decodes(encode(symbols, alphabet), alphabet, decoded));
      CHECK(decoded == symbols);
    }
  }
}

TEST_CASE("the size is within 1% of the entropy, and a header") {
  constexpr std::size_t kCount = 3 * kEntropyBlock / 2;
  constexpr double kHeader = 2 * 24;  // of a few symbols; two blocks
  for (const double nonzero : {0.0112, 0.03, 0.1, 0.3, 0.5, 0.6667}) {
    const Symbols symbols = draw(ternary(nonzero), kCount, 1);
    CHECK(static_cast<double>(encode(symbols, 3).size()) < 1.01 * entropy_bytes(symbols) + kHeader);
  }
  for (const double width : {0.5, 1.0, 3.0, 100.0}) {
    const Symbols symbols = draw(bell(7, width), kCount, 2);
    CHECK(static_cast<double>(encode(symbols, 15).size()) <
          1.01 * entropy_bytes(symbols) + kHeader);
  }
  const Symbols symbols = draw(bell(127, 20), kCount, 3);
  CHECK(static_cast<double>(encode(symbols, 255).size()) < 1.01 * entropy_bytes(symbols) + 512);
}

TEST_CASE("rare symbols cost what their positions do") {
  for (const double nonzero : {1e-5, 1e-4, 1e-3, 3e-3}) {
    const Symbols symbols = draw(ternary(nonzero), 3 * kEntropyBlock / 2, 9);
    const Buffer code = encode(symbols, 3);
    CHECK(static_cast<double>(code.size()) < 1.02 * entropy_bytes(symbols) + 32);
    Symbols decoded(symbols.size());
    CHECK(decodes(code, 3, decoded));
    CHECK(decoded == symbols);
  }
}

TEST_CASE("the size is near the entropy where the number of states changes") {
  for (const double nonzero : {0.0045, 0.02, 0.1, 0.5}) {
    for (std::size_t count = 1000; count < kEntropyBlock; count *= 2) {
      const Symbols symbols = draw(ternary(nonzero), count, 13);
      CHECK(static_cast<double>(encode(symbols, 3).size()) < 1.05 * entropy_bytes(symbols) + 24);
    }
  }
}

TEST_CASE("a few symbols cost a few bytes more than their entropy") {
  for (const double nonzero : {0.05, 0.2, 0.6667}) {
    const Symbols symbols = draw(ternary(nonzero), 112, 4);
    CHECK(static_cast<double>(encode(symbols, 3).size()) < entropy_bytes(symbols) + 11);
  }
}

TEST_CASE("one symbol alone costs two bytes per block") {
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, 2 * kEntropyBlock + 1}) {
    const Buffer code = encode(Symbols(length, 200), 256);
    CHECK(code.size() == 2 * ((length + kEntropyBlock - 1) / kEntropyBlock));
  }
}

TEST_CASE("many symbols of a narrow range are coded in groups, in whatever alphabet") {
  constexpr std::byte kGrouped{5};
  for (const int levels : {1, 2, 3}) {
    const Symbols narrow = draw(bell(levels, 0.8), 500000, 15);
    Symbols shifted = narrow;
    for (auto& symbol : shifted) symbol = static_cast<std::uint8_t>(symbol + 90);
    const Buffer code = encode(narrow, 2 * static_cast<std::size_t>(levels) + 1);
    const Buffer other = encode(shifted, 200);
    REQUIRE(code[0] == kGrouped);
    REQUIRE(other[0] == kGrouped);
    CHECK(code.size() == other.size());
    Symbols decoded(narrow.size());
    CHECK(decodes(other, 200, decoded));
    CHECK(decoded == shifted);
    CHECK_FALSE(decodes(other, 91 + static_cast<std::size_t>(levels), decoded));
    // Neither groups of groups, nor of one symbol each, nor of none.
    Buffer damaged = code;
    damaged[3] = kGrouped;
    CHECK_FALSE(decodes(damaged, 200, decoded));
    damaged = code;
    damaged[2] = std::byte{16};
    CHECK_FALSE(decodes(damaged, 200, decoded));
    CHECK_FALSE(decodes(Buffer(code.begin(), code.begin() + 3), 200, decoded));
  }
}

TEST_CASE("patterns come back, also where all groups are equal and symbols are not") {
  for (const std::size_t alphabet : {2u, 3u, 5u, 9u, 15u, 17u, 33u, 256u}) {
    for (const std::size_t range : {2u, 3u, 4u, 5u, 6u, 15u}) {
      if (range > alphabet) continue;
      for (const std::size_t period : {1u, 2u, 3u, 4u, 5u, 8u, 15u}) {
        for (const std::size_t length : {32768u, 40000u, 120000u}) {
          Symbols symbols(length);
          for (std::size_t i = 0; i < length; ++i) {
            symbols[i] = static_cast<std::uint8_t>(i % period * (range - 1) / period);
          }
          CAPTURE(alphabet);
          CAPTURE(range);
          CAPTURE(period);
          Symbols decoded(length);
          CHECK(decodes(encode(symbols, alphabet), alphabet, decoded));
          CHECK(decoded == symbols);
        }
      }
    }
  }
}

TEST_CASE("what does not compress takes the bits of its alphabet") {
  const Symbols symbols = draw(std::vector<double>(16, 1.0), 100001, 5);
  CHECK(encode(symbols, 16).size() <= 1 + 50001);
}

TEST_CASE("a symbol outside the alphabet is refused") {
  Symbols symbols(1000, 1);
  symbols[777] = 3;
  Buffer out(entropy_bound(symbols.size()));
  CHECK_FALSE(entropy_encode(symbols.data(), symbols.size(), 3, out.data()));
  CHECK(entropy_encode(symbols.data(), symbols.size(), 4, out.data()));
  Symbols decoded(symbols.size());
  CHECK_FALSE(decodes(encode(symbols, 4), 3, decoded));
}

TEST_CASE("frequencies add up, and no symbol that occurs is without") {
  Random random(6);
  for (int run = 0; run < 2000; ++run) {
    Counts counts{};
    const std::size_t used = 2 + below(255, random);
    const std::uint64_t most = std::uint64_t{1} << below(12, random);
    for (std::size_t s = 0; s < used; ++s)
      counts[s] = 1 + static_cast<unsigned>(below(most, random));
    if (one_in(2, random)) counts[below(used, random)] = 500000;
    const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const Frequencies frequencies = scale(counts, count);
    std::uint32_t total = 0;
    for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
      total += frequencies[s];
      REQUIRE((frequencies[s] != 0) == (counts[s] != 0));
    }
    REQUIRE(total == kFrequencyTotal);
    std::byte bytes[kMaxFrequencyBytes];
    BitWriter out(bytes);
    write_frequencies(out, frequencies);
    const std::byte* const end = out.finish();
    REQUIRE(end <= bytes + kMaxFrequencyBytes);
    BitReader in(bytes, end);
    const auto read = read_frequencies(in, used);
    REQUIRE(read.has_value());
    REQUIRE(*read == frequencies);
    REQUIRE(in.finish() == end);
  }
}

TEST_CASE("every level makes and takes the same code") {
  for (const std::size_t length : {100u, 20000u, 20001u, 262175u, 1048576u, 1100000u}) {
    for (const double nonzero : {0.01, 0.3, 0.6667}) {
      const Symbols symbols = draw(ternary(nonzero), length, 12);
      const Buffer code = encode(symbols, 3);
      for (const Kernels* level : available_kernels()) {
        REQUIRE(select_kernels(level->level));
        CHECK(encode(symbols, 3) == code);
        Symbols decoded(length);
        CHECK(decodes(code, 3, decoded));
        CHECK(decoded == symbols);
        const Buffer shorter(code.begin(), code.end() - 1);
        CHECK_FALSE(decodes(shorter, 3, decoded));
      }
    }
  }
}

// The bytes are part of what peers agree upon: another processor must make and take the same.
TEST_CASE("equal symbols make equal bytes on every machine") {
  Symbols symbols(70000);
  std::uint32_t state = 1;
  for (auto& symbol : symbols) {
    state = state * 1664525u + 1013904223u;
    symbol = static_cast<std::uint8_t>((state >> 28) * (state >> 28) >> 5);
  }
  CHECK(fnv1a(encode(symbols, 8)) == 0xee2efbc2fa0286f0u);
  symbols.resize(1000);
  CHECK(fnv1a(encode(symbols, 8)) == 0x21300b85f03f724fu);
}

TEST_CASE("a code that is cut short or goes on is refused") {
  for (const std::size_t length : {1u, 300u, 70000u}) {
    for (const double nonzero : {0.0, 0.2, 0.6667}) {
      const Symbols symbols = draw(ternary(nonzero), length, 7);
      const Buffer code = encode(symbols, 3);
      Symbols decoded(length);
      for (std::size_t cut = 1; cut <= std::min<std::size_t>(code.size(), 40); ++cut) {
        const Buffer part(code.begin(), code.end() - static_cast<std::ptrdiff_t>(cut));
        CHECK_FALSE(decodes(part, 3, decoded));
      }
      Buffer longer = code;
      longer.push_back(std::byte{0});
      CHECK_FALSE(decodes(longer, 3, decoded));
    }
  }
}

TEST_CASE("a flipped bit in coded symbols hardly ever goes unnoticed") {
  for (const std::size_t length : {3000u, 70000u, 270000u}) {
    const Symbols symbols = draw(ternary(0.3), length, 10);
    const Buffer code = encode(symbols, 3);
    Random random(11);
    Symbols decoded(length);
    // A flip in the first words may change a few symbols, and leave the final states as they are.
    int unnoticed = 0;
    for (int run = 0; run < 200; ++run) {
      Buffer damaged = code;
      damaged[below(damaged.size(), random)] ^= static_cast<std::byte>(1 << below(8, random));
      unnoticed += decodes(damaged, 3, decoded);
    }
    CHECK(unnoticed <= 4);
  }
}

TEST_CASE("whatever the bytes are, symbols stay in the alphabet and memory is safe") {
  Random random(8);
  int accepted = 0;
  for (int run = 0; run < 20000; ++run) {
    const std::size_t alphabet = pick({1u, 2u, 3u, 15u, 200u, 256u}, random);
    const std::size_t length = one_in(50, random) ? 65536 + below(100, random) : below(600, random);
    Symbols symbols(length);
    for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(below(alphabet, random));
    Buffer bytes = one_in(2, random) ? mutated(encode(symbols, alphabet), random)
                                     : random_bytes(below(700, random), random);
    if (!bytes.empty() && one_in(2, random)) bytes[0] = static_cast<std::byte>(below(5, random));
    Symbols decoded(length);
    if (!decodes(bytes, alphabet, decoded)) continue;
    ++accepted;
    const bool inside = std::all_of(decoded.begin(), decoded.end(),
                                    [&](std::uint8_t symbol) { return symbol < alphabet; });
    REQUIRE(inside);
  }
  CHECK(accepted > 0);
}

}  // namespace entropy_test
