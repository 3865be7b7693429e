// Codecs: how the values of a tensor are written on the wire, and what the quantised ones consist
// of.
#pragma once

#include "base/types.hpp"

namespace sparsewire {

// `raw` is the tensor's own type. All others are for float32 only: rounded to a half type, or
// quantised at random to signed levels of 8, 4 or 2 bits, with one scale per span.
enum class Codec : std::uint8_t { raw = 0, bfloat16, float16, int8, int4, int2 };
inline constexpr std::uint8_t kCodecCount = 6;

// Values that share a scale; the last span may have fewer.
inline constexpr std::size_t kSpan = 1024;

constexpr std::string_view name_of(Codec codec) {
  constexpr std::string_view names[kCodecCount] = {"raw",  "bfloat16", "float16",
                                                   "int8", "int4",     "int2"};
  return names[static_cast<std::size_t>(codec)];
}

// True where encoding rounds at random, and so needs a key.
constexpr bool is_stochastic(Codec codec) { return codec >= Codec::int8; }

// Bits of one encoded value, without scales, in a tensor whose elements have `element_size` bytes.
constexpr std::size_t bits_per_value(Codec codec, std::size_t element_size) {
  constexpr std::size_t bits[kCodecCount] = {0, 16, 16, 8, 4, 2};
  return codec == Codec::raw ? 8 * element_size : bits[static_cast<std::size_t>(codec)];
}

// The largest level s of a code of `bits` bits: codes are -s to s, and s stands for the scale.
constexpr std::int32_t largest_level(std::size_t bits) {
  return (std::int32_t{1} << (bits - 1)) - 1;
}

constexpr std::size_t scale_count(Codec codec, std::size_t count) {
  return is_stochastic(codec) ? ceil_div(count, kSpan) : 0;
}

}  // namespace sparsewire
