// dither and natural_dither: values to signed levels of their block's norm, at random, and back.
#pragma once

#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

// A level and the fraction below it together have so many bits of an integer.
template <typename T>
inline constexpr unsigned kFixedPoint = kBitsOf<T> - 2;

// At most 1, also where a caller's norm is too small or there is none.
template <typename T>
inline T ratio_of(T value, T norm) {
  const T ratio = magnitude(value) / norm;
  return ratio < 1 ? ratio : 1;
}

template <typename T>
inline std::uint8_t symbol_of(IntegerOf<T> level, T value, IntegerOf<T> levels) {
  const IntegerOf<T> sign = static_cast<IntegerOf<T>>(bits_of(value)) >> kSignAt<T>;
  return static_cast<std::uint8_t>(((level ^ sign) - sign) + levels);
}

// Calls round(norm, noise, first, length) for stretches of blocks that are not zero, and fills the
// others with the symbol of zero.
template <typename T, typename Round>
inline void for_each_dithered(std::size_t count, std::size_t block, const T* norms,
                              std::uint32_t levels, NoiseSource source, std::uint8_t* symbols,
                              Round round) {
  for_each_block(count, block, [=](std::size_t index, std::size_t begin, std::size_t size) {
    const T norm = norms[index];
    if (!(norm > 0)) {
      __builtin_memset(symbols + begin, static_cast<int>(levels), size);
      return;
    }
    for_each_stretch<T>(size, {source.key, source.first + begin},
                        [=](NoiseStretch<T> noise, std::size_t first, std::size_t length) {
                          round(norm, noise, begin + first, static_cast<std::uint32_t>(length));
                        });
  });
}

// So many that the largest level just fits.
template <typename T>
inline unsigned fraction_bits(std::uint32_t levels) {
  unsigned fraction = kFixedPoint<T>;
  while ((1u << (kFixedPoint<T> - fraction)) < levels) --fraction;
  return fraction;
}

// Adds noise below one level and drops the fraction.
template <typename T>
void dither(const T* values, std::size_t count, std::size_t block, const T* norms,
            std::uint32_t levels, NoiseSource source, std::uint8_t* symbols) {
  const unsigned fraction = fraction_bits<T>(levels);
  const auto one = static_cast<T>(BitsOf<T>{levels} << fraction);
  const auto top = static_cast<IntegerOf<T>>(levels);
  const auto round = [=](T norm, NoiseStretch<T> noise, std::size_t first, std::uint32_t length) {
    const T* const in = values + first;
    std::uint8_t* const out = symbols + first;
    SPARSEWIRE_INDEPENDENT
    for (std::uint32_t i = 0; i < length; ++i) {
      const auto below_one = static_cast<IntegerOf<T>>(noise[i] >> (kBitsOf<T> - fraction));
      const auto size = static_cast<IntegerOf<T>>(ratio_of(in[i], norm) * one);
      out[i] = symbol_of((size + below_one) >> fraction, in[i], top);
    }
  };
  for_each_dithered(count, block, norms, levels, source, symbols, round);
}

// The division comes first: norm over levels would lose the bits of a subnormal norm.
template <typename T>
void undither(const std::uint8_t* symbols, std::size_t count, std::size_t block, const T* norms,
              std::uint32_t levels, T* values) {
  const auto largest = static_cast<T>(levels);
  const auto top = static_cast<std::int32_t>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const T norm = norms[index];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      values[i] = static_cast<T>(static_cast<std::int32_t>(symbols[i]) - top) / largest * norm;
    }
  });
}

// Noise below the leading bit of a number carries into its exponent as often as its mantissa says.
// Below the smallest level that is not zero, levels are at equal distances.
template <typename T>
void natural_dither(const T* values, std::size_t count, std::size_t block, const T* norms,
                    std::uint32_t levels, NoiseSource source, std::uint8_t* symbols) {
  const auto top = static_cast<IntegerOf<T>>(levels);
  const T to_smallest = power_of_two<T>(top - 1);
  const T smallest = power_of_two<T>(1 - top);
  const auto round = [=](T norm, NoiseStretch<T> noise, std::size_t first, std::uint32_t length) {
    const T* const in = values + first;
    std::uint8_t* const out = symbols + first;
    constexpr auto one = static_cast<T>(BitsOf<T>{1} << kFixedPoint<T>);
    SPARSEWIRE_INDEPENDENT
    for (std::uint32_t i = 0; i < length; ++i) {
      const BitsOf<T> random = noise[i];
      const T ratio = ratio_of(in[i], norm);
      const BitsOf<T> carried = bits_of(ratio) + (random >> (kBitsOf<T> - kMantissaOf<T>));
      const auto power = static_cast<IntegerOf<T>>(carried >> kMantissaOf<T>) - kBias<T> + top;
      const T scaled = ratio * to_smallest;
      const auto part = static_cast<IntegerOf<T>>((scaled < 1 ? scaled : 1) * one);
      const auto below_one = static_cast<IntegerOf<T>>(random >> (kBitsOf<T> - kFixedPoint<T>));
      const IntegerOf<T> linear = (part + below_one) >> kFixedPoint<T>;
      out[i] = symbol_of(ratio < smallest ? linear : power, in[i], top);
    }
  };
  for_each_dithered(count, block, norms, levels, source, symbols, round);
}

template <typename T>
void natural_undither(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                      const T* norms, std::uint32_t levels, T* values) {
  const auto top = static_cast<IntegerOf<T>>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const T norm = norms[index];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      const IntegerOf<T> level = static_cast<IntegerOf<T>>(symbols[i]) - top;
      const IntegerOf<T> size = level < 0 ? -level : level;
      const T power = power_of_two<T>(size - top);
      const T signed_power = level < 0 ? -power : power;
      values[i] = (level == 0 ? 0 : signed_power) * norm;
    }
  });
}

}  // namespace
}  // namespace sparsewire
