// encode and decode: float32 values to those of a codec and back, a span at a time. The quantised
// codecs are QSGD (Alistarh et al., NeurIPS 2017) with the largest magnitude of a span as its
// scale.
#pragma once

#include "base/types.hpp"
#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/noise.hpp"

namespace sparsewire {
namespace {

inline constexpr std::uint32_t kMagnitude = 0x7fffffffu;
inline constexpr std::uint32_t kInfinity = 0x7f800000u;

// A level in fixed point: an integer of up to 7 bits, its sign apart, and this many bits of
// fraction.
inline constexpr unsigned kFraction = 24;

template <unsigned bits>
inline constexpr std::size_t kCodesPerByte = 8 / bits;

// Calls visit(span, first, length) for the spans that together cover [0, count).
template <typename Visit>
inline void for_each_span(std::size_t count, Visit visit) {
  for (std::size_t first = 0; first < count; first += kSpan) {
    visit(first / kSpan, first, count - first < kSpan ? count - first : kSpan);
  }
}

// The largest magnitude as a bit pattern: these are ordered like the numbers, and NaN comes last.
inline std::uint32_t largest_magnitude(const float* in, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int32_t>(to_bits(in[i]) & kMagnitude);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

// Adds noise below one level and drops the fraction. The ratio is at most 1, for any scale, because
// the division rounds correctly; so no level exceeds the largest, and the noise adds without error.
template <unsigned bits>
inline void quantise(std::int8_t* levels, const float* in, std::size_t count, float scale,
                     Noise noise) {
  constexpr float one = largest_level(bits) * static_cast<float>(1 << kFraction);
  SPARSEWIRE_INDEPENDENT
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    const std::uint32_t value = to_bits(in[i]);
    const float ratio = from_bits(value & kMagnitude) / scale;
    const auto below_one = static_cast<std::int32_t>(noise[i] >> (32 - kFraction));
    const std::int32_t level = (static_cast<std::int32_t>(ratio * one) + below_one) >> kFraction;
    const std::int32_t sign = static_cast<std::int32_t>(value) >> 31;
    levels[i] = static_cast<std::int8_t>((level ^ sign) - sign);
  }
}

template <unsigned bits>
inline void pack_codes(std::byte* out, const std::int8_t* levels, std::size_t bytes) {
  constexpr unsigned mask = (1u << bits) - 1;
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < bytes; ++i) {
    unsigned codes = 0;
    for (unsigned k = 0; k < kCodesPerByte<bits>; ++k) {
      codes |= (static_cast<unsigned>(levels[i * kCodesPerByte<bits> + k]) & mask) << (k * bits);
    }
    out[i] = static_cast<std::byte>(codes);
  }
}

template <unsigned bits>
inline void unpack_codes(std::int8_t* levels, const std::byte* in, std::size_t bytes) {
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < bytes; ++i) {
    for (unsigned k = 0; k < kCodesPerByte<bits>; ++k) {
      const unsigned at_top = static_cast<unsigned>(in[i]) << (8 - (k + 1) * bits);
      levels[i * kCodesPerByte<bits> + k] =
          static_cast<std::int8_t>(static_cast<std::int8_t>(at_top) >> (8 - bits));
    }
  }
}

// The division comes first: scale over levels would lose the bits of a subnormal scale.
template <unsigned bits>
inline void dequantise(float* out, const std::int8_t* levels, std::size_t count, float scale) {
  constexpr float largest = largest_level(bits);
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(levels[i]) / largest * scale;
  }
}

template <unsigned bits>
bool encode_quantised(Codec codec, const float* in, std::size_t count, std::uint64_t key,
                      std::byte* out) {
  auto* const scales = reinterpret_cast<Unaligned<float>*>(out);
  std::byte* const codes = out + scale_count(codec, count) * sizeof(float);
  std::uint32_t largest = 0;
  for_each_span(count, [&](std::size_t span, std::size_t first, std::size_t length) {
    const std::uint32_t magnitude = largest_magnitude(in + first, length);
    largest = magnitude > largest ? magnitude : largest;
    std::int8_t levels[kSpan] = {};
    const bool any = magnitude != 0 && magnitude < kInfinity;
    const float scale = any ? from_bits(magnitude) : 0.0f;
    if (any) quantise<bits>(levels, in + first, length, scale, Noise(key, span));
    scales[span].value = scale;
    pack_codes<bits>(codes + first / kCodesPerByte<bits>, levels,
                     ceil_div(length, kCodesPerByte<bits>));
  });
  return largest < kInfinity;
}

template <unsigned bits>
void decode_quantised(Codec codec, const std::byte* in, std::size_t count, float* out) {
  const auto* const scales = reinterpret_cast<const Unaligned<float>*>(in);
  const std::byte* const codes = in + scale_count(codec, count) * sizeof(float);
  for_each_span(count, [&](std::size_t span, std::size_t first, std::size_t length) {
    std::int8_t levels[kSpan];
    unpack_codes<bits>(levels, codes + first / kCodesPerByte<bits>,
                       ceil_div(length, kCodesPerByte<bits>));
    dequantise<bits>(out + first, levels, length, scales[span].value);
  });
}

// The smallest magnitude that rounds to infinity, as a bit pattern: half a unit above the largest
// finite number.
template <typename T>
inline constexpr std::uint32_t kOverflow = 0;
template <>
inline constexpr std::uint32_t kOverflow<Half> = 0x477ff000u;
template <>
inline constexpr std::uint32_t kOverflow<BFloat16> = 0x7f7f8000u;

template <typename T>
bool encode_half(const float* in, std::size_t count, std::byte* out) {
  std::uint32_t overflows = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = to_bits(in[i]) & kMagnitude;
    overflows |= std::uint32_t{magnitude >= kOverflow<T>} & std::uint32_t{magnitude < kInfinity};
  }
  narrow_all<T>(out, in, count);
  return overflows == 0;
}

bool encode(Codec codec, const float* in, std::size_t count, std::uint64_t key, std::byte* out) {
  switch (codec) {
    case Codec::raw:
      if (count != 0) __builtin_memcpy(out, in, count * sizeof(float));
      return true;
    case Codec::bfloat16:
      return encode_half<BFloat16>(in, count, out);
    case Codec::float16:
      return encode_half<Half>(in, count, out);
    case Codec::int8:
      return encode_quantised<8>(codec, in, count, key, out);
    case Codec::int4:
      return encode_quantised<4>(codec, in, count, key, out);
    case Codec::int2:
      return encode_quantised<2>(codec, in, count, key, out);
  }
  return false;
}

void decode(Codec codec, const std::byte* in, std::size_t count, float* out) {
  switch (codec) {
    case Codec::raw:
      if (count != 0) __builtin_memcpy(out, in, count * sizeof(float));
      return;
    case Codec::bfloat16:
      return widen_all<BFloat16>(out, in, count);
    case Codec::float16:
      return widen_all<Half>(out, in, count);
    case Codec::int8:
      return decode_quantised<8>(codec, in, count, out);
    case Codec::int4:
      return decode_quantised<4>(codec, in, count, out);
    case Codec::int2:
      return decode_quantised<2>(codec, in, count, out);
  }
}

}  // namespace
}  // namespace sparsewire
