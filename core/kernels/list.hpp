// list: the numbers of the set bits of a bitmap, and packed 16-bit numbers, as indices.
#pragma once

#include "kernels/expand.hpp"
#include "kernels/pick.hpp"

namespace sparsewire {
namespace {

#if defined(__AVX2__)
inline constexpr bool kListsBytes = true;

// Writes base + i for each set bit i of a byte, and as many more as make eight.
inline void list_byte(std::int32_t* out, std::int32_t base, unsigned bits) {
  const __m128i lanes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kCompress.lanes[bits]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_add_epi32(_mm256_cvtepu8_epi32(lanes), _mm256_set1_epi32(base)));
}

inline void list_byte(std::int64_t* out, std::int64_t base, unsigned bits) {
  const __m128i lanes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kCompress.lanes[bits]));
#if defined(__AVX512F__)
  _mm512_storeu_si512(
      out, _mm512_add_epi64(_mm512_maskz_cvtepu8_epi64(0xFF, lanes), _mm512_set1_epi64(base)));
#else
  const __m256i bases = _mm256_set1_epi64x(base);
  auto* const to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_cvtepu8_epi64(lanes), bases));
  _mm256_storeu_si256(to + 1,
                      _mm256_add_epi64(_mm256_cvtepu8_epi64(_mm_srli_si128(lanes, 4)), bases));
#endif
}

#else
inline constexpr bool kListsBytes = false;

// Never called.
template <typename Index>
inline void list_byte(Index*, Index, unsigned) {}
#endif

template <typename Index>
inline Index* list_word(Index* out, Index base, std::uint64_t bits) {
  for (int i = 0; i < 8; ++i, bits >>= 8, base += 8) {
    const unsigned byte = bits & 0xFF;
    list_byte(out, base, byte);
    out += __builtin_popcount(byte);
  }
  return out;
}

// Words in front of which at least eight more indices follow: a byte of them may be written as
// eight.
inline std::size_t roomy_words(const std::uint64_t* bitmap, std::size_t words) {
  std::size_t behind = 0;
  while (words > 0 && behind < 8) behind += bits_in(bitmap[--words]);
  return words;
}

template <typename Index>
std::size_t list_bits(const std::uint64_t* bitmap, std::size_t words, Index base, Index* out) {
  Index* at = out;
  const std::size_t roomy = kListsBytes ? roomy_words(bitmap, words) : 0;
  for (std::size_t word = 0; word < words; ++word) {
    const Index first = base + static_cast<Index>(word * 64);
    if (word < roomy) {
      at = list_word(at, first, bitmap[word]);
      continue;
    }
    for (std::uint64_t bits = bitmap[word]; bits != 0; bits &= bits - 1) {
      *at++ = first + static_cast<Index>(__builtin_ctzll(bits));
    }
  }
  return static_cast<std::size_t>(at - out);
}

template <typename Index>
void list_locals(const std::byte* locals, std::size_t count, Index base, Index* out) {
  const auto* const from = reinterpret_cast<const Unaligned<std::uint16_t>*>(locals);
  for (std::size_t i = 0; i < count; ++i) out[i] = base + static_cast<Index>(from[i].value);
}

}  // namespace
}  // namespace sparsewire
