// mark: one bit per element that is not zero.
#pragma once

#include "kernels/elements.hpp"
#include "kernels/kernels.hpp"
#include "kernels/scan.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace sparsewire {
namespace {

// What one word of the bitmap tells of up to 64 elements.
struct Marks {
  std::uint64_t nonzero;
  bool negative_zeros;
};

template <typename Bits>
inline Marks mark_some(const std::byte* data, std::size_t count, Bits mask) {
  const auto* const elements = reinterpret_cast<const Unaligned<Bits>*>(data);
  Marks marks{0, false};
  for (std::size_t i = 0; i < count; ++i) {
    const Bits bits = elements[i].value;
    const bool nonzero = (bits & mask) != 0;
    marks.nonzero |= std::uint64_t{nonzero} << i;
    marks.negative_zeros |= !nonzero & (bits != 0);
  }
  return marks;
}

template <typename Bits>
inline Marks mark_64(const std::byte* data, Bits mask) {
  return mark_some<Bits>(data, 64, mask);
}

#if defined(__AVX512BW__)
template <>
inline Marks mark_64<std::uint32_t>(const std::byte* data, std::uint32_t mask) {
  const __m512i masks = _mm512_set1_epi32(static_cast<int>(mask));
  Marks marks{0, false};
  for (int i = 0; i < 4; ++i) {
    const __m512i bits = _mm512_loadu_si512(data + 64 * i);
    const __mmask16 nonzero = _mm512_test_epi32_mask(bits, masks);
    marks.nonzero |= std::uint64_t{nonzero} << (16 * i);
    marks.negative_zeros |= (_mm512_test_epi32_mask(bits, bits) & ~nonzero) != 0;
  }
  return marks;
}

template <>
inline Marks mark_64<std::uint64_t>(const std::byte* data, std::uint64_t mask) {
  const __m512i masks = _mm512_set1_epi64(static_cast<long long>(mask));
  Marks marks{0, false};
  for (int i = 0; i < 8; ++i) {
    const __m512i bits = _mm512_loadu_si512(data + 64 * i);
    const __mmask8 nonzero = _mm512_test_epi64_mask(bits, masks);
    marks.nonzero |= std::uint64_t{nonzero} << (8 * i);
    marks.negative_zeros |= (_mm512_test_epi64_mask(bits, bits) & ~nonzero) != 0;
  }
  return marks;
}

template <>
inline Marks mark_64<std::uint16_t>(const std::byte* data, std::uint16_t mask) {
  const __m512i masks = _mm512_set1_epi16(static_cast<short>(mask));
  Marks marks{0, false};
  for (int i = 0; i < 2; ++i) {
    const __m512i bits = _mm512_loadu_si512(data + 64 * i);
    const __mmask32 nonzero = _mm512_test_epi16_mask(bits, masks);
    marks.nonzero |= std::uint64_t{nonzero} << (32 * i);
    marks.negative_zeros |= (_mm512_test_epi16_mask(bits, bits) & ~nonzero) != 0;
  }
  return marks;
}

#elif defined(__AVX2__)

// A bit for each of 8 elements of 32 bits: whether it is zero.
inline unsigned zeros_32(__m256i bits) {
  const __m256i zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(zero)));
}

// The same for 32 elements of 16 bits, in two vectors.
inline unsigned zeros_16(__m256i low, __m256i high) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i packed =
      _mm256_packs_epi16(_mm256_cmpeq_epi16(low, zero), _mm256_cmpeq_epi16(high, zero));
  // Packing goes lane by lane.
  return static_cast<unsigned>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(packed, 0xD8)));
}

inline __m256i load_256(const std::byte* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

template <>
inline Marks mark_64<std::uint32_t>(const std::byte* data, std::uint32_t mask) {
  const __m256i masks = _mm256_set1_epi32(static_cast<int>(mask));
  Marks marks{0, false};
  for (int i = 0; i < 8; ++i) {
    const __m256i bits = load_256(data + 32 * i);
    const unsigned zeros = zeros_32(_mm256_and_si256(bits, masks));
    marks.nonzero |= std::uint64_t{~zeros & 0xFF} << (8 * i);
    marks.negative_zeros |= zeros != zeros_32(bits);
  }
  return marks;
}

template <>
inline Marks mark_64<std::uint16_t>(const std::byte* data, std::uint16_t mask) {
  const __m256i masks = _mm256_set1_epi16(static_cast<short>(mask));
  Marks marks{0, false};
  for (int i = 0; i < 2; ++i) {
    const __m256i low = load_256(data + 64 * i);
    const __m256i high = load_256(data + 64 * i + 32);
    const unsigned zeros = zeros_16(_mm256_and_si256(low, masks), _mm256_and_si256(high, masks));
    marks.nonzero |= std::uint64_t{~zeros} << (32 * i);
    marks.negative_zeros |= zeros != zeros_16(low, high);
  }
  return marks;
}
#endif

template <typename Bits>
ScanResult mark_all(const std::byte* data, std::size_t count, std::uint64_t mask,
                    std::uint64_t* bitmap) {
  ScanResult result{0, false};
  for (std::size_t first = 0; first < count; first += 64) {
    const std::byte* const at = data + first * sizeof(Bits);
    const Marks marks = count - first < 64
                            ? mark_some<Bits>(at, count - first, static_cast<Bits>(mask))
                            : mark_64<Bits>(at, static_cast<Bits>(mask));
    bitmap[first / 64] = marks.nonzero;
    result.nonzero += static_cast<std::size_t>(__builtin_popcountll(marks.nonzero));
    result.negative_zeros |= marks.negative_zeros;
  }
  return result;
}

ScanResult mark(const std::byte* data, std::size_t count, DType dtype, std::uint64_t* bitmap) {
  const std::uint64_t mask = value_mask(dtype);
  switch (element_size(dtype)) {
    case 2:
      return mark_all<std::uint16_t>(data, count, mask, bitmap);
    case 4:
      return mark_all<std::uint32_t>(data, count, mask, bitmap);
    default:
      return mark_all<std::uint64_t>(data, count, mask, bitmap);
  }
}

}  // namespace
}  // namespace sparsewire
