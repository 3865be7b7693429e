// scan: one bit per block that is not zero. A block is OR-ed together in strides of up to 1024
// bytes and left at the first stride that is not zero. Shorter strides read less of dense data, but
// then mixed data takes up to twice as long, because its exits cannot be predicted. mark: one bit
// per element that is not zero.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/loops/elements.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace sparsewire {
namespace {

inline constexpr std::size_t kMinStride = 32;  // The smallest block: 16 elements of two bytes.
inline constexpr std::size_t kMaxStride = 1024;

// Every bit but the sign of each element; integers have no sign to leave out.
inline std::uint64_t value_mask(DType dtype) {
  if (!is_floating(dtype)) return ~std::uint64_t{0};
  switch (element_size(dtype)) {
    case 2:
      return 0x7fff7fff7fff7fffu;
    case 4:
      return 0x7fffffff7fffffffu;
    default:
      return 0x7fffffffffffffffu;
  }
}

template <std::size_t stride>
inline std::uint64_t merge(const std::byte* data) {
  const auto* const words = reinterpret_cast<const Unaligned<std::uint64_t>*>(data);
  std::uint64_t merged = 0;
  for (std::size_t i = 0; i < stride / 8; ++i) merged |= words[i].value;
  return merged;
}

// OR of the words of a whole block, or of the part of it that showed that it is not zero.
template <std::size_t stride>
inline std::uint64_t merge_block(const std::byte* data, std::size_t bytes, std::uint64_t mask) {
  std::uint64_t merged = 0;
  for (std::size_t offset = 0; offset < bytes; offset += stride) {
    merged |= merge<stride>(data + offset);
    if (merged & mask) break;
  }
  return merged;
}

// The last block, if it is partial: any number of elements.
inline std::uint64_t merge_tail(const std::byte* data, std::size_t bytes) {
  std::uint64_t merged = 0;
  for (; bytes >= 8; data += 8, bytes -= 8) merged |= merge<8>(data);
  std::uint64_t rest = 0;
  __builtin_memcpy(&rest, data, bytes);
  return merged | rest;
}

template <std::size_t stride>
ScanResult scan_blocks(const std::byte* data, std::size_t bytes, std::size_t block_bytes,
                       std::uint64_t mask, std::uint64_t* bitmap) {
  const std::size_t whole = bytes / block_bytes;
  const std::size_t tail = bytes % block_bytes;
  const std::size_t blocks = whole + (tail != 0);
  ScanResult result{0, false};
  for (std::size_t first = 0; first < blocks; first += 64) {
    const std::size_t last = blocks - first < 64 ? blocks : first + 64;
    std::uint64_t word = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::byte* const block = data + i * block_bytes;
      const std::uint64_t merged =
          i < whole ? merge_block<stride>(block, block_bytes, mask) : merge_tail(block, tail);
      const bool nonzero = merged & mask;
      word |= std::uint64_t{nonzero} << (i - first);
      result.negative_zeros |= !nonzero & (merged != 0);
    }
    bitmap[first / 64] = word;
    result.nonzero += static_cast<std::size_t>(__builtin_popcountll(word));
  }
  return result;
}

// The longest stride that divides a block.
template <std::size_t stride>
ScanResult scan_strides(const std::byte* data, std::size_t bytes, std::size_t block_bytes,
                        std::uint64_t mask, std::uint64_t* bitmap) {
  if constexpr (stride < kMaxStride) {
    if (block_bytes > stride) {
      return scan_strides<2 * stride>(data, bytes, block_bytes, mask, bitmap);
    }
  }
  return scan_blocks<stride>(data, bytes, block_bytes, mask, bitmap);
}

ScanResult scan(const std::byte* data, std::size_t count, DType dtype, std::size_t block,
                std::uint64_t* bitmap) {
  const std::size_t size = element_size(dtype);
  return scan_strides<kMinStride>(data, count * size, block * size, value_mask(dtype), bitmap);
}

// The result for up to 64 elements, which one word of the bitmap takes.
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

// `mask` covers as many elements as 64 bits hold.
#if defined(__AVX512BW__)
template <typename Bits>
inline std::uint64_t any_of(__m512i bits, __m512i masks) {
  if constexpr (sizeof(Bits) == 2) return _mm512_test_epi16_mask(bits, masks);
  if constexpr (sizeof(Bits) == 4) return _mm512_test_epi32_mask(bits, masks);
  if constexpr (sizeof(Bits) == 8) return _mm512_test_epi64_mask(bits, masks);
}

template <typename Bits>
inline Marks mark_64(const std::byte* data, std::uint64_t mask) {
  const __m512i masks = _mm512_set1_epi64(static_cast<long long>(mask));
  Marks marks{0, false};
  for (std::size_t i = 0; i < 64; i += 64 / sizeof(Bits), data += 64) {
    const __m512i bits = _mm512_loadu_si512(data);
    const std::uint64_t nonzero = any_of<Bits>(bits, masks);
    marks.nonzero |= nonzero << i;
    marks.negative_zeros |= (any_of<Bits>(bits, bits) & ~nonzero) != 0;
  }
  return marks;
}

#else
template <typename Bits>
inline Marks mark_64(const std::byte* data, std::uint64_t mask) {
  return mark_some<Bits>(data, 64, static_cast<Bits>(mask));
}

#if defined(__AVX2__)
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
  // Packing works lane by lane.
  return static_cast<unsigned>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(packed, 0xD8)));
}

inline __m256i load_256(const std::byte* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

template <>
inline Marks mark_64<std::uint32_t>(const std::byte* data, std::uint64_t mask) {
  const __m256i masks = _mm256_set1_epi64x(static_cast<long long>(mask));
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
inline Marks mark_64<std::uint16_t>(const std::byte* data, std::uint64_t mask) {
  const __m256i masks = _mm256_set1_epi64x(static_cast<long long>(mask));
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
#endif

template <typename Bits>
ScanResult mark_all(const std::byte* data, std::size_t count, std::uint64_t mask,
                    std::uint64_t* bitmap) {
  ScanResult result{0, false};
  for (std::size_t first = 0; first < count; first += 64) {
    const std::byte* const at = data + first * sizeof(Bits);
    const Marks marks = count - first < 64
                            ? mark_some<Bits>(at, count - first, static_cast<Bits>(mask))
                            : mark_64<Bits>(at, mask);
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
