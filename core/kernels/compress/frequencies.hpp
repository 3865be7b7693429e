// Frequencies of symbols, scaled so that they fit a fixed total, and their compact form: the model
// that encoder and decoder of an entropy code share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/compress/bit_fields.hpp"

namespace sparsewire {

inline constexpr std::size_t kMaxAlphabet = 256;

// More bits would not fit the decoder's table into the nearest cache; fewer cost size. Rounding the
// frequencies to 12 costs 0.2% of symbols of 0.1 bits each.
inline constexpr unsigned kFrequencyBits = 12;
inline constexpr std::uint32_t kFrequencyTotal = std::uint32_t{1} << kFrequencyBits;

using Counts = std::array<std::uint32_t, kMaxAlphabet>;
using Frequencies = std::array<std::uint16_t, kMaxAlphabet>;

Counts count_symbols(const std::uint8_t* symbols, std::size_t count);

// Frequencies that add up to kFrequencyTotal, nowhere zero where a count is not, in integer
// arithmetic: equal counts make equal frequencies on every machine. At least two symbols occur.
Frequencies scale(const Counts& counts, std::size_t count);

// About how many bits an entropy code of these symbols has.
std::uint64_t coded_bits(const Counts& counts, const Frequencies& frequencies);

// At most kMaxFrequencyBytes bytes.
inline constexpr std::size_t kMaxFrequencyBytes = kMaxAlphabet * 2;
void write_frequencies(BitWriter& out, const Frequencies& frequencies);

// None where they do not add up, or name a symbol outside the alphabet, or only one.
std::optional<Frequencies> read_frequencies(BitReader& in, std::size_t alphabet);

}  // namespace sparsewire
