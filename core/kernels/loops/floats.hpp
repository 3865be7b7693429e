// What the loops need to know of float and double: their layout, the integers of their size, and
// the noise that rounds them; and stretches of elements that share a norm (blocks) or a state of
// noise.
#pragma once

#include "kernels/compress_kernels.hpp"
#include "kernels/loops/noise.hpp"

namespace sparsewire {
namespace {

// 64 random bits for each position of a span: the sequence of SplitMix64, from a state of its own
// for each span.
class WideNoise {
 public:
  WideNoise(std::uint64_t key, std::uint64_t span) : state_(mix(mix(key + kStep) + span)) {}

  std::uint64_t operator[](std::uint32_t position) const {
    return mix(state_ + (position + std::uint64_t{1}) * kStep);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

  std::uint64_t state_;
};

template <typename T>
struct Layout;

template <>
struct Layout<float> {
  using Bits = std::uint32_t;
  using Integer = std::int32_t;
  using Noise = sparsewire::Noise;
  static constexpr unsigned kBits = 32;
  static constexpr unsigned kMantissa = 23;
};

template <>
struct Layout<double> {
  using Bits = std::uint64_t;
  using Integer = std::int64_t;
  using Noise = WideNoise;
  static constexpr unsigned kBits = 64;
  static constexpr unsigned kMantissa = 52;
};

template <typename T>
using BitsOf = typename Layout<T>::Bits;
template <typename T>
using IntegerOf = typename Layout<T>::Integer;

template <typename T>
inline constexpr unsigned kBitsOf = Layout<T>::kBits;
template <typename T>
inline constexpr unsigned kMantissaOf = Layout<T>::kMantissa;
template <typename T>
inline constexpr unsigned kSignAt = kBitsOf<T> - 1;
template <typename T>
inline constexpr IntegerOf<T> kBias = (IntegerOf<T>{1} << (kSignAt<T> - kMantissaOf<T> - 1)) - 1;
template <typename T>
inline constexpr BitsOf<T> kMagnitudeMask = (BitsOf<T>{1} << kSignAt<T>)-1;
template <typename T>
inline constexpr BitsOf<T> kInfinityBits = BitsOf<T>(2 * kBias<T> + 1) << kMantissaOf<T>;

template <typename T>
inline BitsOf<T> bits_of(T value) {
  return __builtin_bit_cast(BitsOf<T>, value);
}

template <typename T>
inline T of_bits(BitsOf<T> bits) {
  return __builtin_bit_cast(T, bits);
}

// As integers, magnitudes are ordered like the numbers, and NaN comes last. They are signed,
// because not every level can compare unsigned ones.
template <typename T>
inline IntegerOf<T> magnitude_bits(T value) {
  return static_cast<IntegerOf<T>>(bits_of(value) & kMagnitudeMask<T>);
}

template <typename T>
inline T magnitude(T value) {
  return of_bits<T>(bits_of(value) & kMagnitudeMask<T>);
}

// 2^exponent, from the smallest normal number to the largest.
template <typename T>
inline T power_of_two(IntegerOf<T> exponent) {
  return of_bits<T>(static_cast<BitsOf<T>>(exponent + kBias<T>) << kMantissaOf<T>);
}

// Elements that draw noise from one state.
inline constexpr std::size_t kNoiseSpan = 65536;

// Calls visit(index, first, length) for the blocks that together cover [0, count).
template <typename Visit>
inline void for_each_block(std::size_t count, std::size_t block, Visit visit) {
  std::size_t index = 0;
  for (std::size_t first = 0; first < count; ++index) {
    const std::size_t length = count - first < block ? count - first : block;
    visit(index, first, length);
    first += length;
  }
}

// A stretch of noise, for consecutive elements.
template <typename T>
struct NoiseStretch {
  typename Layout<T>::Noise noise;
  std::uint32_t position;

  BitsOf<T> operator[](std::uint32_t i) const { return noise[position + i]; }
};

// Calls visit(noise, first, length) for stretches that together cover [begin, begin + count), with
// as many bits of noise for each element as T has.
template <typename T, typename Visit>
inline void for_each_stretch(std::uint64_t key, std::size_t begin, std::size_t count, Visit visit) {
  for (std::size_t first = begin; first < begin + count;) {
    const std::size_t position = first % kNoiseSpan;
    const std::size_t room = kNoiseSpan - position;
    const std::size_t left = begin + count - first;
    const std::size_t length = left < room ? left : room;
    const typename Layout<T>::Noise noise(key, first / kNoiseSpan);
    visit(NoiseStretch<T>{noise, static_cast<std::uint32_t>(position)}, first, length);
    first += length;
  }
}

}  // namespace
}  // namespace sparsewire
