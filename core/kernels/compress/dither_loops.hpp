// dither and natural_dither: values to signed levels of their block's norm, at random, and back.
#pragma once

#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

// A level and the fraction below it together have so many bits of an integer.
inline constexpr unsigned kFixedPoint = 30;

// At most 1, also where a caller's norm is too small or there is none.
inline float ratio_of(std::uint32_t magnitude, float norm) {
  const float ratio = from_bits(magnitude) / norm;
  return ratio < 1.0f ? ratio : 1.0f;
}

inline std::uint8_t symbol_of(std::int32_t level, std::uint32_t value, std::int32_t levels) {
  const std::int32_t sign = static_cast<std::int32_t>(value) >> 31;
  return static_cast<std::uint8_t>(((level ^ sign) - sign) + levels);
}

// Calls round(block, noise, first, length) for stretches of blocks that are not zero, and fills
// the others with the symbol of zero.
template <typename Round>
inline void for_each_dithered(std::size_t count, std::size_t block, const float* norms,
                              std::uint32_t levels, NoiseSource source, std::uint8_t* symbols,
                              Round round) {
  for_each_block(count, block, [=](std::size_t index, std::size_t begin, std::size_t size) {
    const float norm = norms[index];
    if (!(norm > 0)) {
      __builtin_memset(symbols + begin, static_cast<int>(levels), size);
      return;
    }
    for_each_stretch(size, {source.key, source.first + begin},
                     [=](NoiseStretch noise, std::size_t first, std::size_t length) {
                       round(norm, noise, begin + first, static_cast<std::uint32_t>(length));
                     });
  });
}

// So many that the largest level just fits; at least 23.
inline unsigned fraction_bits(std::uint32_t levels) {
  unsigned fraction = kFixedPoint;
  while ((std::uint64_t{levels} << fraction) > (std::uint64_t{1} << kFixedPoint)) --fraction;
  return fraction;
}

// Adds noise below one level and drops the fraction.
void dither(const float* values, std::size_t count, std::size_t block, const float* norms,
            std::uint32_t levels, NoiseSource source, std::uint8_t* symbols) {
  const unsigned fraction = fraction_bits(levels);
  const auto one = static_cast<float>(levels << fraction);
  const auto top = static_cast<std::int32_t>(levels);
  const auto round = [=](float norm, NoiseStretch noise, std::size_t first, std::uint32_t length) {
    const float* const in = values + first;
    std::uint8_t* const out = symbols + first;
    SPARSEWIRE_INDEPENDENT
    for (std::uint32_t i = 0; i < length; ++i) {
      const std::uint32_t value = to_bits(in[i]);
      const float ratio = ratio_of(value & kMagnitudeBits, norm);
      const auto below_one = static_cast<std::int32_t>(noise[i] >> (32 - fraction));
      const std::int32_t level = (static_cast<std::int32_t>(ratio * one) + below_one) >> fraction;
      out[i] = symbol_of(level, value, top);
    }
  };
  for_each_dithered(count, block, norms, levels, source, symbols, round);
}

// The division comes first: norm over levels would lose the bits of a subnormal norm.
void undither(const std::uint8_t* symbols, std::size_t count, std::size_t block, const float* norms,
              std::uint32_t levels, float* values) {
  const auto largest = static_cast<float>(levels);
  const auto top = static_cast<std::int32_t>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const float norm = norms[index];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      values[i] = static_cast<float>(static_cast<std::int32_t>(symbols[i]) - top) / largest * norm;
    }
  });
}

// A power of two as float32, from the smallest normal one to the largest.
inline float power_of_two(std::int32_t exponent) {
  return from_bits(static_cast<std::uint32_t>(exponent + 127) << kMantissa);
}

// Noise below the leading bit of a number carries into its exponent as often as its mantissa says.
// Below the smallest level that is not zero, levels are at equal distances.
void natural_dither(const float* values, std::size_t count, std::size_t block, const float* norms,
                    std::uint32_t levels, NoiseSource source, std::uint8_t* symbols) {
  const auto top = static_cast<std::int32_t>(levels);
  const float to_smallest = power_of_two(top - 1);
  const float smallest = power_of_two(1 - top);
  const auto round = [=](float norm, NoiseStretch noise, std::size_t first, std::uint32_t length) {
    const float* const in = values + first;
    std::uint8_t* const out = symbols + first;
    constexpr float one = 1 << kFixedPoint;
    SPARSEWIRE_INDEPENDENT
    for (std::uint32_t i = 0; i < length; ++i) {
      const std::uint32_t value = to_bits(in[i]);
      const std::uint32_t random = noise[i];
      const float ratio = ratio_of(value & kMagnitudeBits, norm);
      const std::uint32_t carried = to_bits(ratio) + (random >> (32 - kMantissa));
      const std::int32_t power = static_cast<std::int32_t>(carried >> kMantissa) - 127 + top;
      const float scaled = ratio * to_smallest;
      const auto part = static_cast<std::int32_t>((scaled < 1.0f ? scaled : 1.0f) * one);
      const auto below_one = static_cast<std::int32_t>(random >> (32 - kFixedPoint));
      const std::int32_t linear = (part + below_one) >> kFixedPoint;
      out[i] = symbol_of(ratio < smallest ? linear : power, value, top);
    }
  };
  for_each_dithered(count, block, norms, levels, source, symbols, round);
}

void natural_undither(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                      const float* norms, std::uint32_t levels, float* values) {
  const auto top = static_cast<std::int32_t>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const float norm = norms[index];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      const std::int32_t level = static_cast<std::int32_t>(symbols[i]) - top;
      const std::int32_t size = level < 0 ? -level : level;
      const std::uint32_t power = static_cast<std::uint32_t>(size - top + 127) << kMantissa;
      const std::uint32_t sign = static_cast<std::uint32_t>(level) & 0x80000000u;
      values[i] = from_bits(level == 0 ? 0 : power | sign) * norm;
    }
  });
}

}  // namespace
}  // namespace sparsewire
