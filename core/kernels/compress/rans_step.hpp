// One step of rANS in either direction: the arithmetic that every loop over symbols shares, and the
// tables that it looks symbols up in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compress/bit_fields.hpp"
#include "kernels/compress/frequencies.hpp"

namespace sparsewire {

// States are kept in [2^15, 2^31); a word moves in or out where a step would leave that range.
inline constexpr unsigned kRansLowBits = 15;
inline constexpr std::uint32_t kRansLow = std::uint32_t{1} << kRansLowBits;
inline constexpr unsigned kRansLimitBits = 31 - kFrequencyBits;
inline constexpr std::size_t kRansWord = 2;  // bytes

// States that many symbols are spread over, round by round.
inline constexpr std::size_t kRansLanes = 32;

// Of each symbol: its frequency, its start and a shift, in that many bits from the low ones up; and
// a reciprocal, with which state / frequency is (state * reciprocal) >> shift.
inline constexpr unsigned kRansStartAt = kFrequencyBits;
inline constexpr unsigned kRansShiftAt = 2 * kFrequencyBits;
struct RansEncoder {
  std::uint32_t symbols[kMaxAlphabet]{};
  std::uint32_t reciprocals[kMaxAlphabet]{};
};

// Of each of the kFrequencyTotal slots: the symbol, its frequency and the distance from its start.
inline constexpr unsigned kRansFrequencyAt = 8;
inline constexpr unsigned kRansDistanceAt = kRansFrequencyAt + kFrequencyBits;
struct RansDecoder {
  std::uint32_t slots[kFrequencyTotal];
};

inline constexpr std::uint32_t kRansMask = kFrequencyTotal - 1;

// Levels compile their own copies of what follows; see elements.hpp.
namespace {

// state = state / frequency * total + start + state % frequency, once a word has made room.
inline void rans_put(const RansEncoder& encoder, std::uint8_t symbol, std::uint32_t& state,
                     std::byte*& out) {
  const std::uint32_t packed = encoder.symbols[symbol];
  const std::uint32_t frequency = packed & kRansMask;
  // Without a branch, which could not be predicted.
  store_16(out - kRansWord, state);
  const std::uint32_t full = state >= frequency << kRansLimitBits;
  state >>= 16 * full;
  out -= kRansWord * full;
  const std::uint64_t product = std::uint64_t{state} * encoder.reciprocals[symbol];
  const auto quotient = static_cast<std::uint32_t>(product >> (packed >> kRansShiftAt));
  state += ((packed >> kRansStartAt) & kRansMask) + quotient * (kFrequencyTotal - frequency);
}

// Leaves the state below kRansLow where a word is to be taken.
inline std::uint8_t rans_get(const RansDecoder& decoder, std::uint32_t& state) {
  const std::uint32_t slot = decoder.slots[state & kRansMask];
  const std::uint32_t frequency = (slot >> kRansFrequencyAt) & kRansMask;
  state = frequency * (state >> kFrequencyBits) + (slot >> kRansDistanceAt);
  return static_cast<std::uint8_t>(slot);
}

// Takes a word where the state is low: by a mask, because no branch could be predicted here, and
// compilers make one of anything else.
inline void rans_refill(std::uint32_t& state, const std::byte*& in) {
  const std::uint32_t longer = state << 16 | load_16(in);
  const std::int64_t low = (std::int64_t{state} - std::int64_t{kRansLow}) >> 63;
  state ^= (longer ^ state) & static_cast<std::uint32_t>(low);
  in -= static_cast<std::ptrdiff_t>(kRansWord) * low;
}

}  // namespace
}  // namespace sparsewire
