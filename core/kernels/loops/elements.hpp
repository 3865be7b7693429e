// Element types as the kernels see them: how they lie in memory, which type they accumulate in, and
// how half types become float32 and back, with the same bits at every level: in integer arithmetic,
// or by the F16C instructions if the level has them. In this header and those that build on it,
// every function has internal linkage and uses nothing from the standard library, because each
// level compiles its own copy: the linker must never give one level's code to another.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/types.hpp"

namespace sparsewire {
namespace {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

// A value at any address; the attributes let the compiler use unaligned vector accesses.
template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

template <typename T>
struct AccumulatorOf {
  using Type = T;
};
template <>
struct AccumulatorOf<Half> {
  using Type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using Type = float;
};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::Type;

template <typename T>
inline constexpr bool kIsInteger = __is_same(T, std::int32_t) || __is_same(T, std::int64_t);

// Calls visit(T{}) with the type that `dtype` names.
template <typename Visit>
inline void with_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::float16:
      return visit(Half{});
    case DType::bfloat16:
      return visit(BFloat16{});
    case DType::int32:
      return visit(std::int32_t{});
    case DType::int64:
      return visit(std::int64_t{});
  }
}

inline std::uint32_t to_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// All branches below are selects: the compiler turns them into vector blends.

inline float widen(Half half) {
  constexpr std::uint32_t bias = (127 - 15) << 23;
  constexpr std::uint32_t quiet = 1u << 22;
  constexpr std::uint32_t infinity = 0x1fu << 23;
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  const std::uint32_t shifted = static_cast<std::uint32_t>(half.bits & 0x7fffu) << 13;
  // A subnormal mantissa below a leading one is too large by exactly that one.
  const std::uint32_t one = bias + (1u << 23);
  const std::uint32_t subnormal = to_bits(from_bits(shifted + one) - from_bits(one));
  const std::uint32_t special = (shifted + 2 * bias) | (shifted > infinity ? quiet : 0u);
  const std::uint32_t normal = shifted + bias;
  const std::uint32_t finite = shifted < (1u << 23) ? subnormal : normal;
  return from_bits(sign | (shifted >= infinity ? special : finite));
}

inline float widen(BFloat16 value) {
  return from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

template <typename T>
T narrow(float value);

// Rounds to nearest even; overflow becomes infinity, a NaN becomes quiet and keeps its top bits.
template <>
inline Half narrow<Half>(float value) {
  constexpr std::uint32_t overflow = 0x47800000u;         // 65536
  constexpr std::uint32_t smallest_normal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t bias = (127 - 15) << 23;
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // The unit in the last place of 0.5f is that of a subnormal half: the addition rounds.
  const std::uint32_t subnormal = to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f);
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t normal = (magnitude - bias + 0xfffu + odd) >> 13;
  const std::uint32_t finite = magnitude < smallest_normal ? subnormal : normal;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
  const std::uint32_t result = magnitude >= overflow ? special : finite;
  return {static_cast<std::uint16_t>(result | ((bits >> 16) & 0x8000u))};
}

template <>
inline BFloat16 narrow<BFloat16>(float value) {
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? nan : rounded)};
}

// Elements that the processor's own instructions convert; the caller converts the rest.
#if defined(__F16C__)
inline std::size_t widen_by_instruction(float* out, const Unaligned<Half>* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

inline std::size_t narrow_by_instruction(Unaligned<Half>* out, const float* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(out + i), halves);
  }
  return i;
}
#endif

inline std::size_t widen_by_instruction(float*, const void*, std::size_t) { return 0; }
inline std::size_t narrow_by_instruction(void*, const float*, std::size_t) { return 0; }

template <typename T>
inline void widen_all(float* out, const std::byte* in, std::size_t count) {
  const auto* const source = reinterpret_cast<const Unaligned<T>*>(in);
  for (std::size_t i = widen_by_instruction(out, source, count); i < count; ++i) {
    out[i] = widen(source[i].value);
  }
}

template <typename T>
inline void narrow_all(std::byte* out, const float* in, std::size_t count) {
  auto* const to = reinterpret_cast<Unaligned<T>*>(out);
  for (std::size_t i = narrow_by_instruction(to, in, count); i < count; ++i) {
    to[i].value = narrow<T>(in[i]);
  }
}

}  // namespace
}  // namespace sparsewire
