// natural_compress: values to powers of two, at random, and back.
#pragma once

#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

// Noise below the leading bit carries into the exponent as often as the mantissa says; that holds
// for subnormal numbers as well, whose exponent is zero like that of zero itself.
template <typename T>
void natural_compress(const T* values, std::size_t count, NoiseSource source,
                      std::uint16_t* codes) {
  for_each_stretch<T>(
      count, source, [=](NoiseStretch<T> noise, std::size_t first, std::size_t length) {
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

}  // namespace
}  // namespace sparsewire
