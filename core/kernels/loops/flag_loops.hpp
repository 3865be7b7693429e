// One bit per element: magnitudes that reach a bound, elements that differ, and coins. Flags are
// made in bytes, which vectorises, and packed from there.
#pragma once

#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/floats.hpp"

namespace sparsewire {
namespace {

inline constexpr std::size_t kByteFlags = 8;
inline constexpr std::size_t kWordFlags = 64;

// Bit i of eight flags, each a byte of 0 or 1: the product moves byte i to bit 56 + i.
inline std::uint64_t pack_8(const std::uint8_t* flags) {
  std::uint64_t bytes;
  __builtin_memcpy(&bytes, flags, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  bytes = __builtin_bswap64(bytes);
#endif
  return (bytes * 0x0102040810204080u) >> 56;
}

// Calls fill(flags, first, length) for tiles of flags, and packs them; returns how many are set.
template <typename Fill>
inline std::size_t fill_bitmap(std::size_t count, std::uint64_t* bitmap, Fill fill) {
  std::size_t set = 0;
  for_each_tile(count, [=, &set](std::size_t first, std::size_t length) {
    std::uint8_t flags[kTile];
    if (length != kTile) __builtin_memset(flags, 0, sizeof flags);
    fill(flags, first, length);
    for (std::size_t i = 0; i < length; i += kWordFlags) {
      std::uint64_t word = 0;
      for (unsigned k = 0; k < kWordFlags; k += kByteFlags) word |= pack_8(flags + i + k) << k;
      bitmap[(first + i) / kWordFlags] = word;
      set += static_cast<std::size_t>(__builtin_popcountll(word));
    }
  });
  return set;
}

template <typename T>
std::size_t reaching(const T* values, std::size_t count, T bound, std::uint64_t* bitmap) {
  const IntegerOf<T> least = magnitude_bits(bound);
  return fill_bitmap(count, bitmap,
                     [=](std::uint8_t* flags, std::size_t first, std::size_t length) {
                       for (std::size_t i = 0; i < length; ++i) {
                         flags[i] = magnitude_bits(values[first + i]) >= least ? 1 : 0;
                       }
                     });
}

// Whether two numbers are the same as bfloat16, where zero has no sign.
inline bool is_same_in_half(float a, float b) {
  const std::uint32_t left = narrow<BFloat16>(a).bits, right = narrow<BFloat16>(b).bits;
  return left == right || ((left | right) & 0x7fffu) == 0;
}

template <typename T>
std::size_t visible(const T* values, std::size_t count, const T* parameters, T rate,
                    std::uint64_t* bitmap) {
  return fill_bitmap(
      count, bitmap, [=](std::uint8_t* flags, std::size_t first, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) {
          const T before = parameters[first + i];
          const T after = before - rate * values[first + i];
          flags[i] = is_same_in_half(static_cast<float>(before), static_cast<float>(after)) ? 0 : 1;
        }
      });
}

template <typename Bits>
std::size_t differing(const std::byte* a, const std::byte* b, std::size_t count,
                      std::uint64_t* bitmap) {
  const auto* const left = reinterpret_cast<const Unaligned<Bits>*>(a);
  const auto* const right = reinterpret_cast<const Unaligned<Bits>*>(b);
  return fill_bitmap(count, bitmap,
                     [=](std::uint8_t* flags, std::size_t first, std::size_t length) {
                       for (std::size_t i = 0; i < length; ++i) {
                         flags[i] = left[first + i].value != right[first + i].value ? 1 : 0;
                       }
                     });
}

std::size_t bernoulli(std::size_t count, double probability, std::uint64_t key,
                      std::uint64_t* bitmap) {
  const double scaled = probability * 4294967296.0 + 0.5;
  if (!(scaled >= 1)) {
    return fill_bitmap(count, bitmap, [](std::uint8_t* flags, std::size_t, std::size_t length) {
      __builtin_memset(flags, 0, length);
    });
  }
  const std::uint32_t last =
      scaled < 4294967296.0 ? static_cast<std::uint32_t>(scaled) - 1 : ~std::uint32_t{0};
  return fill_bitmap(
      count, bitmap, [=](std::uint8_t* flags, std::size_t first, std::size_t length) {
        for_each_stretch<float>(key, first, length,
                                [=](NoiseStretch<float> noise, std::size_t begin, std::size_t n) {
                                  std::uint8_t* const out = flags + (begin - first);
                                  for (std::uint32_t i = 0; i < n; ++i)
                                    out[i] = noise[i] <= last ? 1 : 0;
                                });
      });
}

}  // namespace
}  // namespace sparsewire
