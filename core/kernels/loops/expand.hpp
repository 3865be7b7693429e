// Moves packed elements of 32 bits to the places that the bits of a word name, and back, eight at a
// time if the processor can shuffle so many.
#pragma once

#include "kernels/loops/elements.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace sparsewire {
namespace {

// If so many bits of a word are set, moving the whole word is faster than bit by bit.
inline constexpr int kCrowdedWord = 8;

// Whether elements of `size` bytes are shuffled.
#if defined(__AVX2__)
template <std::size_t size>
inline constexpr bool kShuffles = size == 4;

// For every byte of a bitmap, the source of each of eight lanes, a byte for each.
struct LaneTable {
  std::uint64_t lanes[256];
};

constexpr LaneTable make_lanes(bool expands) {
  LaneTable table{};
  for (unsigned bits = 0; bits < 256; ++bits) {
    std::uint64_t rank = 0;
    for (std::uint64_t place = 0; place < 8; ++place) {
      if (((bits >> place) & 1) == 0) continue;
      table.lanes[bits] |= expands ? rank << (8 * place) : place << (8 * rank);
      ++rank;
    }
  }
  return table;
}

constexpr LaneTable kExpand = make_lanes(true);
constexpr LaneTable kCompress = make_lanes(false);

inline __m256i lanes_of(const LaneTable& table, unsigned bits) {
  const auto* const lanes = reinterpret_cast<const __m128i*>(&table.lanes[bits]);
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes));
}

inline __m256i shuffled(const std::byte* in, const LaneTable& table, unsigned bits) {
  return _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)),
                                     lanes_of(table, bits));
}

// All ones in the lanes whose bit is set.
inline __m256i lane_mask(unsigned bits) {
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each),
                            each);
}

// out[i] = the next of `in` where bit i is set, and `rest[i]` or zero elsewhere. Reads up to eight
// elements more than the word has bits.
template <bool keeps_rest>
inline void expand_64(std::byte* out, const std::byte* in, std::uint64_t word) {
  for (int i = 0; i < 8; ++i, word >>= 8, out += 32) {
    const unsigned bits = word & 0xFF;
    auto* const at = reinterpret_cast<__m256i*>(out);
    const __m256i spread = shuffled(in, kExpand, bits);
    if constexpr (keeps_rest) {
      _mm256_storeu_si256(at, _mm256_blendv_epi8(_mm256_loadu_si256(at), spread, lane_mask(bits)));
    } else {
      _mm256_storeu_si256(at, _mm256_and_si256(spread, lane_mask(bits)));
    }
    in += 4 * __builtin_popcount(bits);
  }
}

// Packs the elements of `in` whose bit is set. May write up to eight elements beyond these.
inline void compress_64(std::byte* out, const std::byte* in, std::uint64_t word) {
  for (int i = 0; i < 8; ++i, word >>= 8, in += 32) {
    const unsigned bits = word & 0xFF;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), shuffled(in, kCompress, bits));
    out += 4 * __builtin_popcount(bits);
  }
}

#else
template <std::size_t size>
inline constexpr bool kShuffles = false;

// Never called.
template <bool keeps_rest>
inline void expand_64(std::byte*, const std::byte*, std::uint64_t) {}
inline void compress_64(std::byte*, const std::byte*, std::uint64_t) {}
#endif

}  // namespace
}  // namespace sparsewire
