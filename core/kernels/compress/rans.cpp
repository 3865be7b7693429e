// The tables of rANS, and the symbols that do not fill a round of the loops in rans_loops.hpp.
#include "kernels/compress/rans.hpp"

#include <bit>

#include "kernels/compress/rans_step.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

constexpr std::size_t kState = 4;  // bytes

// With s = 32 + floor(log2 frequency), the reciprocal is 2^s / frequency, rounded up, and has 32
// bits. It is too large by less than frequency / 2^s of itself, and a state below frequency * 2^19
// has less than 2^s / frequency: the quotient is exact. A power of two is divided by a shift.
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
