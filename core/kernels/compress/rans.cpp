// States are kept in [2^16, 2^32); a word moves in or out where a step would leave that range.
#include "kernels/compress/rans.hpp"

#include <array>

#include "kernels/compress/bit_stream.hpp"

namespace sparsewire {
namespace {

constexpr std::uint32_t kLow = std::uint32_t{1} << 16;
constexpr std::size_t kWord = 2;   // bytes
constexpr std::size_t kState = 4;  // bytes

// A state below frequency * 2^20 is divided by the frequency: the product with the reciprocal is
// exact in 64 bits, because frequency * frequency < 2^24.
constexpr unsigned kReciprocalBits = 44;
constexpr unsigned kLimitBits = 32 - kFrequencyBits;

struct EncoderSymbol {
  std::uint64_t reciprocal = 0;
  std::uint32_t limit = 0;
  std::uint16_t start = 0;
  std::uint16_t complement = 0;  // the total less the frequency
};

// One of two by a flag, in arithmetic: a branch, which compilers prefer here, could not be
// predicted.
inline std::uint32_t select(std::uint32_t flag, std::uint32_t one, std::uint32_t zero) {
  return zero ^ ((one ^ zero) & (0 - flag));
}

using EncoderTable = std::array<EncoderSymbol, kMaxAlphabet>;

EncoderTable encoder_table(const Frequencies& frequencies) {
  EncoderTable table;
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    const std::uint32_t frequency = frequencies[s];
    if (frequency == 0) continue;
    table[s] = {((std::uint64_t{1} << kReciprocalBits) + frequency - 1) / frequency,
                frequency << kLimitBits, static_cast<std::uint16_t>(start),
                static_cast<std::uint16_t>(kFrequencyTotal - frequency)};
    start += frequency;
  }
  return table;
}

// state = state / frequency * total + start + state % frequency, once a word has made room.
inline void encode_symbol(const EncoderSymbol& symbol, std::uint32_t& state, std::byte*& out) {
  store_16(out - kWord, state);
  const std::uint32_t full = state >= symbol.limit;
  state = select(full, state >> 16, state);
  out -= kWord * full;
  const auto quotient = static_cast<std::uint32_t>((state * symbol.reciprocal) >> kReciprocalBits);
  state += symbol.start + quotient * symbol.complement;
}

template <std::size_t states>
std::byte* encode(const EncoderTable& table, const std::uint8_t* symbols, std::size_t count,
                  std::byte* out) {
  std::uint32_t state[states];
  for (std::uint32_t& each : state) each = kLow;
  std::size_t i = count;
  for (; i % states != 0; --i) encode_symbol(table[symbols[i - 1]], state[(i - 1) % states], out);
  for (; i != 0; i -= states) {
    for (std::size_t k = states; k-- > 0;) {
      encode_symbol(table[symbols[i - states + k]], state[k], out);
    }
  }
  for (std::size_t k = states; k-- > 0;) store_32(out -= kState, state[k]);
  return out;
}

// Symbol, frequency and distance from the symbol's first slot, for each slot.
using DecoderTable = std::array<std::uint32_t, kFrequencyTotal>;

constexpr unsigned kFrequencyAt = 8;
constexpr unsigned kDistanceAt = kFrequencyAt + kFrequencyBits;

void fill_decoder_table(const Frequencies& frequencies, DecoderTable& table) {
  std::size_t slot = 0;
  for (std::uint32_t s = 0; s < kMaxAlphabet; ++s) {
    const std::uint32_t frequency = frequencies[s];
    for (std::uint32_t k = 0; k < frequency; ++k) {
      table[slot++] = k << kDistanceAt | frequency << kFrequencyAt | s;
    }
  }
}

inline std::uint8_t decode_symbol(const DecoderTable& table, std::uint32_t& state) {
  constexpr std::uint32_t mask = kFrequencyTotal - 1;
  const std::uint32_t slot = table[state & mask];
  state = ((slot >> kFrequencyAt) & mask) * (state >> kFrequencyBits) + (slot >> kDistanceAt);
  return static_cast<std::uint8_t>(slot);
}

// Takes a word where the state is low: by a mask, because no branch could be predicted here, and
// compilers make one of anything else.
inline void refill(std::uint32_t& state, const std::byte*& in) {
  const std::uint32_t longer = state << 16 | load_16(in);
  const std::int64_t low = (std::int64_t{state} - std::int64_t{kLow}) >> 63;
  state ^= (longer ^ state) & static_cast<std::uint32_t>(low);
  in -= static_cast<std::ptrdiff_t>(kWord) * low;
}

template <std::size_t states>
const std::byte* decode(const DecoderTable& table, const std::byte* in, const std::byte* end,
                        std::uint8_t* symbols, std::size_t count) {
  constexpr std::ptrdiff_t kMost = states * kWord;  // bytes that all states take at once
  if (end - in < static_cast<std::ptrdiff_t>(states * kState)) return nullptr;
  std::uint32_t state[states];
  for (std::uint32_t& each : state) {
    each = load_32(in);
    if (each < kLow) return nullptr;
    in += kState;
  }
  std::size_t i = 0;
  for (; i + states <= count && end - in >= kMost; i += states) {
    for (std::size_t k = 0; k < states; ++k) {
      symbols[i + k] = decode_symbol(table, state[k]);
      refill(state[k], in);
    }
  }
  for (; i < count; ++i) {
    std::uint32_t& each = state[i % states];
    symbols[i] = decode_symbol(table, each);
    if (each >= kLow) continue;
    if (end - in < static_cast<std::ptrdiff_t>(kWord)) return nullptr;
    refill(each, in);
  }
  for (const std::uint32_t each : state) {
    if (each != kLow) return nullptr;
  }
  return in;
}

}  // namespace

std::byte* rans_encode(const Frequencies& frequencies, const std::uint8_t* symbols,
                       std::size_t count, std::byte* end) {
  const EncoderTable table = encoder_table(frequencies);
  return rans_states(count) == 1 ? encode<1>(table, symbols, count, end)
                                 : encode<8>(table, symbols, count, end);
}

const std::byte* rans_decode(const Frequencies& frequencies, const std::byte* in,
                             const std::byte* end, std::uint8_t* symbols, std::size_t count) {
  DecoderTable table;
  fill_decoder_table(frequencies, table);
  return rans_states(count) == 1 ? decode<1>(table, in, end, symbols, count)
                                 : decode<8>(table, in, end, symbols, count);
}

}  // namespace sparsewire
