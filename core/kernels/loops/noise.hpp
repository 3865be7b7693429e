// Random bits for stochastic rounding, from a counter-based generator: a pure function of key,
// span and position, so that every level and every order of evaluation draws the same ones.
#pragma once

#include <cstdint>

namespace sparsewire {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The finaliser of MurmurHash3 for 32 bits (Appleby), which vectorises, while 64 bits would not.
inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// The random bits of one span. Keys that differ in any bit give unrelated bits.
class Noise {
 public:
  Noise(std::uint64_t key, std::uint64_t span) : Noise(mix(mix(key + kOffset) + span)) {}

  std::uint32_t operator[](std::uint32_t position) const {
    return mix(mix(position + first_) ^ second_);
  }

 private:
  // The finaliser leaves zero as it is, so a key of zero must not reach it.
  static constexpr std::uint64_t kOffset = 0x9e3779b97f4a7c15u;

  explicit Noise(std::uint64_t mixed)
      : first_(static_cast<std::uint32_t>(mixed)),
        second_(static_cast<std::uint32_t>(mixed >> 32)) {}

  std::uint32_t first_;
  std::uint32_t second_;
};

}  // namespace
}  // namespace sparsewire
