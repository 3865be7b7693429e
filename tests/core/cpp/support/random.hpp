// Seeded choices, so that whatever fails can be run again, and the damage that fuzzing does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>

#include "elements.hpp"

namespace sparsewire::test {

using Random = std::mt19937_64;

// A quarter under a sanitizer, which makes each run of a scenario five times as long.
constexpr std::uint64_t fewer_if_watched(std::uint64_t many) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (many + 3) / 4;
#else
  return many;
#endif
}

// Uniform in [0, bound).
inline std::uint64_t below(std::uint64_t bound, Random& random) { return random() % bound; }

inline bool one_in(std::uint64_t n, Random& random) { return below(n, random) == 0; }

template <typename T>
T pick(std::initializer_list<T> choices, Random& random) {
  return choices.begin()[below(choices.size(), random)];
}

template <typename T, std::size_t n>
T pick(const T (&choices)[n], Random& random) {
  return choices[below(n, random)];
}

// Numbers around which bounds lie, and any others.
inline std::uint64_t edgy_number(Random& random) {
  const std::uint64_t power = std::uint64_t{1} << below(64, random);
  return pick({power - 1, power, power + 1, ~power, ~std::uint64_t{0}, random()}, random);
}

inline Buffer random_bytes(std::size_t size, Random& random) {
  Buffer bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Damages a few bytes: flips a bit, sets any value, or writes an edgy number over eight of them.
inline void mutate(std::span<std::byte> bytes, Random& random) {
  if (bytes.empty()) return;
  for (std::uint64_t damages = 1 + below(3, random); damages != 0; --damages) {
    const std::size_t at = below(bytes.size(), random);
    const std::uint64_t number = edgy_number(random);
    switch (below(3, random)) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1 << below(8, random));
        break;
      case 1:
        bytes[at] = static_cast<std::byte>(random());
        break;
      default:
        std::memcpy(bytes.data() + at, &number, std::min(sizeof number, bytes.size() - at));
    }
  }
}

// The same, and now and then cut short or made longer; in memory of exactly the size that results.
inline Buffer mutated(const Buffer& original, Random& random) {
  Buffer bytes(original.begin(), original.end());
  mutate(bytes, random);
  if (!one_in(4, random)) return bytes;
  Buffer resized(below(bytes.size() + 9, random));
  std::copy_n(bytes.begin(), std::min(bytes.size(), resized.size()), resized.begin());
  return resized;
}

}  // namespace sparsewire::test
