// rans_encode and rans_decode: rounds of kRansLanes symbols, one for each state, eight states at a
// time if the processor can look up so many.
#pragma once

#include "kernels/loops/expand.hpp"
#include "kernels/rans.hpp"

namespace sparsewire {
namespace {

#if defined(__AVX2__)

inline constexpr std::size_t kEight = 8;
inline constexpr std::size_t kVectors = kRansLanes / kEight;

// For every set of lanes, the order that moves these lanes, ascending, to the last places.
constexpr LaneTable make_last_lanes() {
  LaneTable table{};
  for (unsigned bits = 0; bits < 256; ++bits) {
    std::uint64_t place = kEight;
    for (std::uint64_t lane = kEight; lane-- != 0;) {
      if ((bits >> lane) & 1) table.lanes[bits] |= lane << (8 * --place);
    }
  }
  return table;
}

constexpr LaneTable kLast = make_last_lanes();

inline __m256i look_up(const std::uint32_t* table, __m256i index) {
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, sizeof(std::uint32_t));
}

inline __m256i splat(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }

inline unsigned mask_of(__m256i lanes) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}

inline std::ptrdiff_t words_of(unsigned mask) {
  return static_cast<std::ptrdiff_t>(kRansWord) * __builtin_popcount(mask);
}

// (state * reciprocal) >> shift in 64 bits, for the even lanes and then for the odd ones.
inline __m256i divided(__m256i state, __m256i reciprocal, __m256i shift) {
  const __m256i low = _mm256_set1_epi64x(0xffffffff);
  const __m256i even =
      _mm256_srlv_epi64(_mm256_mul_epu32(state, reciprocal), _mm256_and_si256(shift, low));
  const __m256i odd = _mm256_srlv_epi64(
      _mm256_mul_epu32(_mm256_srli_epi64(state, 32), _mm256_srli_epi64(reciprocal, 32)),
      _mm256_srli_epi64(shift, 32));
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

// Writes the low halves of the lanes in `mask`, ascending, so that they end at `out`. Bytes that it
// writes before them must be overwritten later.
inline void store_words(__m256i state, unsigned mask, std::byte* out) {
  const __m256i packed = _mm256_permutevar8x32_epi32(state, lanes_of(kLast, mask));
  const __m256i halves = _mm256_and_si256(packed, splat(0xffff));
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out - sizeof words), words);
}

inline void encode_eight(const RansEncoder& encoder, const std::uint8_t* symbols, __m256i& state,
                         std::byte*& out) {
  const __m256i index =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols)));
  const __m256i packed = look_up(encoder.symbols, index);
  const __m256i reciprocal = look_up(encoder.reciprocals, index);
  const __m256i frequency = _mm256_and_si256(packed, splat(kRansMask));
  const __m256i start = _mm256_and_si256(_mm256_srli_epi32(packed, kRansStartAt), splat(kRansMask));
  const __m256i limit = _mm256_slli_epi32(frequency, kRansLimitBits);
  const __m256i has_room = _mm256_cmpgt_epi32(limit, state);
  const unsigned full = mask_of(has_room) ^ 0xffu;
  store_words(state, full, out);
  out -= words_of(full);
  state = _mm256_blendv_epi8(_mm256_srli_epi32(state, 16), state, has_room);
  const __m256i quotient = divided(state, reciprocal, _mm256_srli_epi32(packed, kRansShiftAt));
  const __m256i gap = _mm256_sub_epi32(splat(kFrequencyTotal), frequency);
  state = _mm256_add_epi32(_mm256_add_epi32(state, start), _mm256_mullo_epi32(quotient, gap));
}

inline void load_states(const std::uint32_t* states, __m256i* vectors) {
  for (std::size_t v = 0; v < kVectors; ++v) {
    vectors[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states + v * kEight));
  }
}

inline void store_states(const __m256i* vectors, std::uint32_t* states) {
  for (std::size_t v = 0; v < kVectors; ++v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(states + v * kEight), vectors[v]);
  }
}

std::byte* rans_encode(const RansEncoder& encoder, const std::uint8_t* symbols, std::size_t rounds,
                       std::uint32_t* states, std::byte* out) {
  __m256i state[kVectors];
  load_states(states, state);
  for (const std::uint8_t* at = symbols + rounds * kRansLanes; at != symbols;) {
    at -= kRansLanes;
    encode_eight(encoder, at + 24, state[3], out);
    encode_eight(encoder, at + 16, state[2], out);
    encode_eight(encoder, at + 8, state[1], out);
    encode_eight(encoder, at, state[0], out);
  }
  store_states(state, states);
  return out;
}

// Returns the slots; their low bytes are the symbols.
inline __m256i decode_eight(const RansDecoder& decoder, __m256i& state, const std::byte*& in) {
  const __m256i slot = look_up(decoder.slots, _mm256_and_si256(state, splat(kRansMask)));
  const __m256i frequency =
      _mm256_and_si256(_mm256_srli_epi32(slot, kRansFrequencyAt), splat(kRansMask));
  state = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srli_epi32(state, kFrequencyBits)),
                           _mm256_srli_epi32(slot, kRansDistanceAt));
  const __m256i low =
      _mm256_cmpeq_epi32(_mm256_srli_epi32(state, kRansLowBits), _mm256_setzero_si256());
  const unsigned taken = mask_of(low);
  const __m256i words =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  const __m256i spread = _mm256_permutevar8x32_epi32(words, lanes_of(kExpand, taken));
  const __m256i longer = _mm256_or_si256(_mm256_slli_epi32(state, 16), spread);
  state = _mm256_blendv_epi8(state, longer, low);
  in += words_of(taken);
  return slot;
}

// The low bytes of 32 lanes.
inline __m256i low_bytes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i byte = splat(0xff);
  const __m256i ab = _mm256_packus_epi32(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
  const __m256i cd = _mm256_packus_epi32(_mm256_and_si256(c, byte), _mm256_and_si256(d, byte));
  // Packing works on halves of a vector, which leaves groups of four in this order.
  return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

std::size_t rans_decode(const RansDecoder& decoder, const std::byte*& in, const std::byte* end,
                        std::uint8_t* symbols, std::size_t rounds, std::uint32_t* states) {
  constexpr std::ptrdiff_t kMost = kRansLanes * kRansWord;
  __m256i state[kVectors];
  load_states(states, state);
  std::size_t round = 0;
  // A copy for a register: a byte may alias any object, `in` too.
  const std::byte* next = in;
  for (; round < rounds && end - next >= kMost; ++round) {
    const __m256i a = decode_eight(decoder, state[0], next);
    const __m256i b = decode_eight(decoder, state[1], next);
    const __m256i c = decode_eight(decoder, state[2], next);
    const __m256i d = decode_eight(decoder, state[3], next);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(symbols + round * kRansLanes),
                        low_bytes(a, b, c, d));
  }
  in = next;
  store_states(state, states);
  return round;
}

#else

std::byte* rans_encode(const RansEncoder& encoder, const std::uint8_t* symbols, std::size_t rounds,
                       std::uint32_t* states, std::byte* out) {
  for (std::size_t i = rounds * kRansLanes; i != 0;) {
    for (std::size_t lane = kRansLanes; lane-- != 0;) {
      rans_put(encoder, symbols[--i], states[lane], out);
    }
  }
  return out;
}

std::size_t rans_decode(const RansDecoder& decoder, const std::byte*& in, const std::byte* end,
                        std::uint8_t* symbols, std::size_t rounds, std::uint32_t* states) {
  constexpr std::ptrdiff_t kMost = kRansLanes * kRansWord;
  std::size_t round = 0;
  for (; round < rounds && end - in >= kMost; ++round) {
    for (std::size_t lane = 0; lane < kRansLanes; ++lane) {
      symbols[round * kRansLanes + lane] = rans_get(decoder, states[lane]);
      rans_refill(states[lane], in);
    }
  }
  return round;
}

#endif

}  // namespace
}  // namespace sparsewire
