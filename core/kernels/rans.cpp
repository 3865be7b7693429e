// A frequency is written as its bit width in four bits, and the bits below its leading one; after a
// width of zero comes the length of the run of zeros. The list ends when the total is reached. This
// file also makes the tables, and codes the symbols that do not fill a round of the loops in
// rans_loops.hpp.
#include "kernels/rans.hpp"

#include <algorithm>
#include <bit>

#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

constexpr unsigned kWidthBits = 4;
constexpr std::size_t kMaxZeroRun = 16;

// The symbol that gains the most if its frequency grows by one, or loses the least if it shrinks by
// one. The derivative of its part of the size, count * log2(frequency), is compared as a fraction.
template <bool grows>
std::size_t next_to_change(const Counts& counts, const Frequencies& frequencies) {
  const auto divisor = [&](std::size_t s) {
    return 2 * std::uint64_t{frequencies[s]} + (grows ? 1 : -1);
  };
  std::size_t best = kMaxAlphabet;
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    if (counts[s] == 0 || (!grows && frequencies[s] == 1)) continue;
    if (best == kMaxAlphabet) {
      best = s;
      continue;
    }
    const std::uint64_t gain = counts[s] * divisor(best);
    const std::uint64_t best_gain = counts[best] * divisor(s);
    if (grows ? gain > best_gain : gain < best_gain) best = s;
  }
  return best;
}

std::size_t zero_run(const Frequencies& frequencies, std::size_t from) {
  std::size_t length = 0;
  while (length < kMaxZeroRun && from + length < kMaxAlphabet && frequencies[from + length] == 0) {
    ++length;
  }
  return length;
}

constexpr unsigned kLogBits = 16;

// log2 of a number from 1 to 2^16, in multiples of 2^-16 and rounded down: in integers, so that all
// machines compute the same. Each square of the fraction in [1, 2) tells one more bit.
std::uint64_t log2_of(std::uint32_t number) {
  const auto whole = static_cast<unsigned>(std::bit_width(number)) - 1;
  std::uint64_t fraction = std::uint64_t{number} << (31 - whole);
  std::uint64_t result = whole;
  for (unsigned bit = 0; bit < kLogBits; ++bit) {
    fraction = fraction * fraction >> 31;
    const std::uint64_t is_two = fraction >> 32;
    result = result << 1 | is_two;
    fraction >>= is_two;
  }
  return result;
}

constexpr std::size_t kState = 4;  // bytes

// With s = 32 + floor(log2 frequency), the reciprocal is 2^s / frequency, rounded up, and has 32
// bits. It is too large by less than a share of frequency / 2^s, and a state below frequency * 2^19
// is less than 2^s / frequency: so the quotient is exact. Division by a power of two is a shift.
RansEncoder make_encoder(const Frequencies& frequencies) {
  RansEncoder encoder;
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    const std::uint32_t frequency = frequencies[s];
    if (frequency == 0) continue;
    const auto shift = static_cast<unsigned>(std::bit_width(frequency)) + 31 -
                       static_cast<unsigned>(std::has_single_bit(frequency));
    encoder.reciprocals[s] =
        static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + frequency - 1) / frequency);
    encoder.symbols[s] = shift << kRansShiftAt | start << kRansStartAt | frequency;
    start += frequency;
  }
  return encoder;
}

void fill_decoder(const Frequencies& frequencies, RansDecoder& decoder) {
  std::size_t slot = 0;
  for (std::uint32_t s = 0; s < kMaxAlphabet; ++s) {
    const std::uint32_t frequency = frequencies[s];
    for (std::uint32_t k = 0; k < frequency; ++k) {
      decoder.slots[slot++] = k << kRansDistanceAt | frequency << kRansFrequencyAt | s;
    }
  }
}

template <std::size_t states>
std::byte* encode(const RansEncoder& encoder, const std::uint8_t* symbols, std::size_t count,
                  std::byte* out) {
  std::uint32_t state[states];
  for (std::uint32_t& each : state) each = kRansLow;
  const std::size_t rounds = states == kRansLanes ? count / states : 0;
  for (std::size_t i = count; i != rounds * states; --i) {
    rans_put(encoder, symbols[i - 1], state[(i - 1) % states], out);
  }
  if (rounds != 0) out = kernels().compress.rans_encode(encoder, symbols, rounds, state, out);
  for (std::size_t k = states; k-- > 0;) store_32(out -= kState, state[k]);
  return out;
}

template <std::size_t states>
const std::byte* decode(const RansDecoder& decoder, const std::byte* in, const std::byte* end,
                        std::uint8_t* symbols, std::size_t count) {
  if (end - in < static_cast<std::ptrdiff_t>(states * kState)) return nullptr;
  std::uint32_t state[states];
  for (std::uint32_t& each : state) {
    each = load_32(in);
    if (each < kRansLow) return nullptr;
    in += kState;
  }
  std::size_t i = 0;
  if (states == kRansLanes) {
    // As long as there are words for all states.
    i = states * kernels().compress.rans_decode(decoder, in, end, symbols, count / states, state);
  }
  for (; i < count; ++i) {
    std::uint32_t& each = state[i % states];
    symbols[i] = rans_get(decoder, each);
    if (each >= kRansLow) continue;
    if (end - in < static_cast<std::ptrdiff_t>(kRansWord)) return nullptr;
    rans_refill(each, in);
  }
  for (const std::uint32_t each : state) {
    if (each != kRansLow) return nullptr;
  }
  return in;
}

}  // namespace

Counts count_symbols(const std::uint8_t* symbols, std::size_t count) {
  // Several tables, so that equal neighbours do not wait for each other.
  constexpr std::size_t kTables = 4;
  std::array<Counts, kTables> tables{};
  std::size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (std::size_t table = 0; table < kTables; ++table) ++tables[table][symbols[i + table]];
  }
  for (; i < count; ++i) ++tables[0][symbols[i]];
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    for (std::size_t table = 1; table < kTables; ++table) tables[0][s] += tables[table][s];
  }
  return tables[0];
}

Frequencies scale(const Counts& counts, std::size_t count) {
  Frequencies frequencies{};
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    if (counts[s] == 0) continue;
    const std::uint64_t nearest = (std::uint64_t{counts[s]} * kFrequencyTotal + count / 2) / count;
    frequencies[s] = static_cast<std::uint16_t>(std::max(nearest, std::uint64_t{1}));
    total += frequencies[s];
  }
  for (; total > kFrequencyTotal; --total)
    --frequencies[next_to_change<false>(counts, frequencies)];
  for (; total < kFrequencyTotal; ++total) ++frequencies[next_to_change<true>(counts, frequencies)];
  return frequencies;
}

std::uint64_t coded_bits(const Counts& counts, const Frequencies& frequencies) {
  constexpr std::uint64_t kTotal = std::uint64_t{kFrequencyBits} << kLogBits;
  std::uint64_t bits = 0;
  for (std::size_t s = 0; s < kMaxAlphabet; ++s) {
    if (counts[s] != 0) bits += counts[s] * (kTotal - log2_of(frequencies[s]));
  }
  return bits >> kLogBits;
}

void write_frequencies(BitWriter& out, const Frequencies& frequencies) {
  std::uint32_t total = 0;
  for (std::size_t s = 0; total < kFrequencyTotal;) {
    const std::uint32_t frequency = frequencies[s];
    const auto width = static_cast<unsigned>(std::bit_width(frequency));
    out.put(width, kWidthBits);
    if (width == 0) {
      const std::size_t length = zero_run(frequencies, s);
      out.put(static_cast<std::uint32_t>(length - 1), kWidthBits);
      s += length;
      continue;
    }
    out.put(frequency - (std::uint32_t{1} << (width - 1)), width - 1);
    total += frequency;
    ++s;
  }
}

std::optional<Frequencies> read_frequencies(BitReader& in, std::size_t alphabet) {
  Frequencies frequencies{};
  std::uint32_t total = 0;
  for (std::size_t s = 0; total < kFrequencyTotal;) {
    if (s >= alphabet || in.failed()) return {};
    const unsigned width = in.get(kWidthBits);
    if (width == 0) {
      s += in.get(kWidthBits) + 1;
      continue;
    }
    const std::uint32_t frequency = (std::uint32_t{1} << (width - 1)) | in.get(width - 1);
    if (frequency >= kFrequencyTotal) return {};
    frequencies[s++] = static_cast<std::uint16_t>(frequency);
    total += frequency;
  }
  if (total != kFrequencyTotal || in.failed()) return {};
  return frequencies;
}

std::byte* rans_encode(Rans rans, const Frequencies& frequencies, const std::uint8_t* symbols,
                       std::size_t count, std::byte* end) {
  const RansEncoder encoder = make_encoder(frequencies);
  return rans == Rans::wide ? encode<kRansLanes>(encoder, symbols, count, end)
                            : encode<1>(encoder, symbols, count, end);
}

const std::byte* rans_decode(Rans rans, const Frequencies& frequencies, const std::byte* in,
                             const std::byte* end, std::uint8_t* symbols, std::size_t count) {
  RansDecoder decoder;
  fill_decoder(frequencies, decoder);
  return rans == Rans::wide ? decode<kRansLanes>(decoder, in, end, symbols, count)
                            : decode<1>(decoder, in, end, symbols, count);
}

}  // namespace sparsewire
