// Range asymmetric numeral systems (rANS; Duda, 2013): symbols to nearly as few bits as their
// frequencies allow, and back. This header has the model that encoder and decoder share
// (frequencies scaled to a fixed total) and its compact form; the tables to look symbols up in; the
// arithmetic of one step, which every loop over symbols shares; and codes of whole vectors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/bit_fields.hpp"

namespace sparsewire {

inline constexpr std::size_t kMaxAlphabet = 256;

// With more bits the decoder's table would not fit into the nearest cache; with fewer, codes get
// longer. At 0.1 bits per symbol, rounding the frequencies to 12 bits costs 0.2%.
inline constexpr unsigned kFrequencyBits = 12;
inline constexpr std::uint32_t kFrequencyTotal = std::uint32_t{1} << kFrequencyBits;

using Counts = std::array<std::uint32_t, kMaxAlphabet>;
using Frequencies = std::array<std::uint16_t, kMaxAlphabet>;

Counts count_symbols(const std::uint8_t* symbols, std::size_t count);

// Frequencies that add up to kFrequencyTotal, and are zero only if the count is zero. The
// arithmetic is in integers, so equal counts make equal frequencies on every machine. At least two
// symbols must occur.
Frequencies scale(const Counts& counts, std::size_t count);

// About how many bits an entropy code of the symbols has.
std::uint64_t coded_bits(const Counts& counts, const Frequencies& frequencies);

// Writes at most kMaxFrequencyBytes bytes.
inline constexpr std::size_t kMaxFrequencyBytes = kMaxAlphabet * 2;
void write_frequencies(BitWriter& out, const Frequencies& frequencies);

// None if they do not add up, or if they name a symbol outside the alphabet, or only one symbol.
std::optional<Frequencies> read_frequencies(BitReader& in, std::size_t alphabet);

// States are kept in [2^15, 2^31); a word moves in or out when a step would leave that range.
inline constexpr unsigned kRansLowBits = 15;
inline constexpr std::uint32_t kRansLow = std::uint32_t{1} << kRansLowBits;
inline constexpr unsigned kRansLimitBits = 31 - kFrequencyBits;
inline constexpr std::size_t kRansWord = 2;  // bytes

// The number of states over which many symbols are spread, round by round.
inline constexpr std::size_t kRansLanes = 32;

// For each symbol: its frequency, its start and a shift, packed from the low bits up; and a
// reciprocal, with which state / frequency is (state * reciprocal) >> shift.
inline constexpr unsigned kRansStartAt = kFrequencyBits;
inline constexpr unsigned kRansShiftAt = 2 * kFrequencyBits;
struct RansEncoder {
  std::uint32_t symbols[kMaxAlphabet]{};
  std::uint32_t reciprocals[kMaxAlphabet]{};
};

// For each of the kFrequencyTotal slots: the symbol, its frequency, and the distance from its
// start.
inline constexpr unsigned kRansFrequencyAt = 8;
inline constexpr unsigned kRansDistanceAt = kRansFrequencyAt + kFrequencyBits;
struct RansDecoder {
  std::uint32_t slots[kFrequencyTotal];
};

inline constexpr std::uint32_t kRansMask = kFrequencyTotal - 1;

// Levels compile their own copies of the following functions; see elements.hpp.
namespace {

// state = state / frequency * total + start + state % frequency, after a word has made room.
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

// Leaves the state below kRansLow if a word must be taken.
inline std::uint8_t rans_get(const RansDecoder& decoder, std::uint32_t& state) {
  const std::uint32_t slot = decoder.slots[state & kRansMask];
  const std::uint32_t frequency = (slot >> kRansFrequencyAt) & kRansMask;
  state = frequency * (state >> kFrequencyBits) + (slot >> kRansDistanceAt);
  return static_cast<std::uint8_t>(slot);
}

// Takes a word if the state is low: by a mask, because a branch could not be predicted here, and
// compilers make one of anything else.
inline void rans_refill(std::uint32_t& state, const std::byte*& in) {
  const std::uint32_t longer = state << 16 | load_16(in);
  const std::int64_t low = (std::int64_t{state} - std::int64_t{kRansLow}) >> 63;
  state ^= (longer ^ state) & static_cast<std::uint32_t>(low);
  in -= static_cast<std::ptrdiff_t>(kRansWord) * low;
}

}  // namespace

// The code is the final states, of 32 bits each, then words of 16 bits in the order in which the
// decoder takes them; all little-endian. Symbol i belongs to state i % states: many states keep a
// processor busy, one state costs the least bytes.
enum class Rans : std::uint8_t { narrow = 0, wide };

// Bytes that no code of `count` symbols exceeds, and room to write whole vectors.
constexpr std::size_t rans_bound(Rans rans, std::size_t count) {
  return 2 * count + 4 * (rans == Rans::wide ? kRansLanes : 1) + 16;
}

// Writes the code to the memory before `end`, of rans_bound bytes, and returns where it begins. No
// symbol that occurs has a frequency of zero or of the total.
std::byte* rans_encode(Rans rans, const Frequencies& frequencies, const std::uint8_t* symbols,
                       std::size_t count, std::byte* end);

// Reads the code of `count` symbols and returns where it ends; null if [in, end) does not start
// with one. Whatever the bytes are, the symbols have frequencies that are not zero.
const std::byte* rans_decode(Rans rans, const Frequencies& frequencies, const std::byte* in,
                             const std::byte* end, std::uint8_t* symbols, std::size_t count);

}  // namespace sparsewire
