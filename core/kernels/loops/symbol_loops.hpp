// Values to symbols and back: levels of their block's norm, rounded at random; the nearest
// multiples of a step, or powers of two; powers of two, rounded at random; and signs.
#pragma once

#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/norm_loops.hpp"

namespace sparsewire {
namespace {

// The bits of an integer that a level and the fraction below it have together.
template <typename T>
inline constexpr unsigned kFixedPoint = kBitsOf<T> - 2;

// At most 1, even if a caller's norm is too small or zero.
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
// other blocks with the symbol of zero.
template <typename T, typename Round>
inline void for_each_dithered(std::size_t count, std::size_t block, const T* norms,
                              std::uint32_t levels, std::uint64_t key, std::size_t position,
                              std::uint8_t* symbols, Round round) {
  for_each_block(count, block, [=](std::size_t index, std::size_t begin, std::size_t size) {
    const T norm = norms[index];
    if (!(norm > 0)) {
      __builtin_memset(symbols + begin, static_cast<int>(levels), size);
      return;
    }
    for_each_stretch<T>(key, position + begin, size,
                        [=](NoiseStretch<T> noise, std::size_t first, std::size_t length) {
                          round(norm, noise, first - position, static_cast<std::uint32_t>(length));
                        });
  });
}

// As many bits as leave just enough for the largest level.
template <typename T>
inline unsigned fraction_bits(std::uint32_t levels) {
  unsigned fraction = kFixedPoint<T>;
  while ((1u << (kFixedPoint<T> - fraction)) < levels) --fraction;
  return fraction;
}

// Adds noise below one level and drops the fraction.
template <typename T>
void dither(const T* values, std::size_t count, std::size_t block, const T* norms,
            std::uint32_t levels, std::uint64_t key, std::size_t position, std::uint8_t* symbols) {
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
  for_each_dithered(count, block, norms, levels, key, position, symbols, round);
}

// Writes value_of(level, scale) for each symbol and the scale of its block.
template <typename T, typename F>
inline void for_each_level(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                           const T* scales, std::uint32_t levels, T* values, F value_of) {
  const auto top = static_cast<std::int32_t>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const T scale = scales[index];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      values[i] = value_of(static_cast<std::int32_t>(symbols[i]) - top, scale);
    }
  });
}

// The division comes first: norm over levels would lose the bits of a subnormal norm.
template <typename T>
void undither(const std::uint8_t* symbols, std::size_t count, std::size_t block, const T* norms,
              std::uint32_t levels, T* values) {
  const auto largest = static_cast<T>(levels);
  for_each_level(symbols, count, block, norms, levels, values, [=](std::int32_t level, T norm) {
    return static_cast<T>(level) / largest * norm;
  });
}

// Noise below the leading bit of a number carries into its exponent as often as its mantissa says.
// Below the smallest level that is not zero, levels are at equal distances.
template <typename T>
void natural_dither(const T* values, std::size_t count, std::size_t block, const T* norms,
                    std::uint32_t levels, std::uint64_t key, std::size_t position,
                    std::uint8_t* symbols) {
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
  for_each_dithered(count, block, norms, levels, key, position, symbols, round);
}

template <typename T>
void natural_undither(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                      const T* norms, std::uint32_t levels, T* values) {
  const auto top = static_cast<IntegerOf<T>>(levels);
  for_each_level(symbols, count, block, norms, levels, values, [=](std::int32_t level, T norm) {
    const IntegerOf<T> size = level < 0 ? -level : level;
    const T power = power_of_two<T>(size - top);
    const T signed_power = level < 0 ? -power : power;
    return (level == 0 ? 0 : signed_power) * norm;
  });
}

// The least power of two, from the smallest normal number on, of which `levels` multiples, 2^n - 1,
// reach a magnitude.
template <typename T>
inline T step_of(IntegerOf<T> largest, std::uint32_t levels) {
  const int bits = __builtin_popcount(levels);
  // If the magnitude is at most half a level below the next power of two, it would be rounded to
  // one level too many.
  const BitsOf<T> carried = static_cast<BitsOf<T>>(largest) +
                            (BitsOf<T>{1} << (kMantissaOf<T> - static_cast<unsigned>(bits)));
  const auto power = static_cast<IntegerOf<T>>(carried >> kMantissaOf<T>) - kBias<T> + 1 - bits;
  const IntegerOf<T> least = 1 - kBias<T>;
  return power_of_two<T>(power < least ? least : power < kBias<T> ? power : kBias<T>);
}

template <typename T>
void nearest_multiples(const T* values, std::size_t count, std::size_t block, std::uint32_t levels,
                       T* steps, std::uint8_t* symbols) {
  // A sum with it is rounded to an integer, which is in the low bits.
  constexpr auto kRounder = static_cast<T>(BitsOf<T>{3} << (kMantissaOf<T> - 1));
  const auto largest = static_cast<T>(levels);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const T step = steps[index] = step_of<T>(largest_bits(values + first, length), levels);
    // The product of a larger level would be infinite.
    const T most = of_bits<T>(kInfinityBits<T> - 1) / step;
    const auto top = static_cast<T>(static_cast<std::int32_t>(most < largest ? most : largest));
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      const T level = values[i] / step;
      const T inside = level < -top ? -top : level > top ? top : level;
      symbols[i] = static_cast<std::uint8_t>(bits_of(inside + kRounder) + levels);
    }
  });
}

template <typename T>
void multiples(const std::uint8_t* symbols, std::size_t count, std::size_t block, const T* steps,
               std::uint32_t levels, T* values) {
  for_each_level(symbols, count, block, steps, levels, values,
                 [](std::int32_t level, T step) { return static_cast<T>(level) * step; });
}

// The exponent of the nearest power of two, as T stores it: half a mantissa more carries into it.
template <typename T>
inline IntegerOf<T> nearest_exponent(IntegerOf<T> size) {
  return (size + (IntegerOf<T>{1} << (kMantissaOf<T> - 1))) >> kMantissaOf<T>;
}

// Scales are powers of two, so that divisions are exact.
template <typename T>
void nearest_powers(const T* values, std::size_t count, std::size_t block, std::uint32_t levels,
                    T* scales, std::uint8_t* symbols) {
  const auto top = static_cast<IntegerOf<T>>(levels);
  const T half_of_least = power_of_two<T>(-top);
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const IntegerOf<T> power = nearest_exponent<T>(largest_bits(values + first, length)) - kBias<T>;
    const IntegerOf<T> least = 1 - kBias<T>;
    const T scale = scales[index] = power_of_two<T>(power < least      ? least
                                                    : power < kBias<T> ? power
                                                                       : kBias<T>);
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = first; i < first + length; ++i) {
      const T ratio = magnitude(values[i]) / scale;
      const IntegerOf<T> near = nearest_exponent<T>(magnitude_bits(ratio)) - kBias<T> + top;
      const IntegerOf<T> inside = near < 1 ? 1 : near > top ? top : near;
      symbols[i] = symbol_of(ratio < half_of_least ? IntegerOf<T>{0} : inside, values[i], top);
    }
  });
}

// Noise below the leading bit carries into the exponent as often as the mantissa says; that holds
// for subnormal numbers as well, whose exponent is zero like that of zero itself.
template <typename T>
void natural_compress(const T* values, std::size_t count, std::uint64_t key, std::uint16_t* codes) {
  for_each_stretch<T>(
      key, 0, count, [=](NoiseStretch<T> noise, std::size_t first, std::size_t length) {
        const T* const in = values + first;
        std::uint16_t* const out = codes + first;
        SPARSEWIRE_INDEPENDENT
        for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(length); ++i) {
          const auto size = static_cast<BitsOf<T>>(magnitude_bits(in[i]));
          const BitsOf<T> carried = size + (noise[i] >> (kBitsOf<T> - kMantissaOf<T>));
          const auto exponent = static_cast<IntegerOf<T>>(carried >> kMantissaOf<T>);
          const auto negative = static_cast<IntegerOf<T>>(bits_of(in[i]) >> kSignAt<T>);
          out[i] = static_cast<std::uint16_t>(exponent == 0 ? 0 : 2 * exponent + negative);
        }
      });
}

template <typename T, typename Code>
void natural_decompress(const Code* codes, std::size_t count, std::uint32_t base, T* values) {
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const BitsOf<T> code = codes[i] == 0 ? 0 : codes[i] + base;
    values[i] = of_bits<T>((code >> 1) << kMantissaOf<T> | code << kSignAt<T>);
  }
}

template <typename T>
void signs(const T* values, std::size_t count, std::uint8_t* symbols) {
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const IntegerOf<T> sign = values[i] > 0 ? 1 : values[i] < 0 ? -1 : 0;
    symbols[i] = static_cast<std::uint8_t>(sign + 1);
  }
}

}  // namespace
}  // namespace sparsewire
