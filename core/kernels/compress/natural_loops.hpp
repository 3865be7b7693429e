// natural_compress: values to powers of two, at random, and back.
#pragma once

#include "kernels/compress/flag_loops.hpp"
#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

inline constexpr std::int32_t kLargestExponent = 254;

// Noise below the leading bit carries into the exponent as often as the mantissa says; that holds
// for subnormal numbers as well, whose exponent is zero like that of zero itself.
void natural_compress(const float* values, std::size_t count, NoiseSource source,
                      std::uint8_t* exponents, std::uint8_t* bits) {
  for_each_stretch(count, source, [=](NoiseStretch noise, std::size_t first, std::size_t length) {
    const float* const in = values + first;
    std::uint8_t* const out = exponents + first;
    SPARSEWIRE_INDEPENDENT
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(length); ++i) {
      const std::uint32_t carried = magnitude_bits(in[i]) + (noise[i] >> (32 - kMantissa));
      const auto exponent = static_cast<std::int32_t>(carried >> kMantissa);
      out[i] = static_cast<std::uint8_t>(exponent < kLargestExponent ? exponent : kLargestExponent);
    }
  });
  signs(values, count, bits);
}

void natural_decompress(const std::uint8_t* exponents, const std::uint8_t* bits, std::size_t count,
                        float* values) {
  for_each_spread(
      bits, count, [=](const std::uint8_t* flags, std::size_t first, std::size_t length) {
        SPARSEWIRE_INDEPENDENT
        for (std::size_t i = 0; i < length; ++i) {
          const std::uint32_t sign = static_cast<std::uint32_t>(flags[i]) << 31;
          values[first + i] =
              from_bits(static_cast<std::uint32_t>(exponents[first + i]) << kMantissa | sign);
        }
      });
}

}  // namespace
}  // namespace sparsewire
