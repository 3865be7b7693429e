// Range asymmetric numeral systems (rANS; Duda, 2013): symbols to nearly as few bits as their
// frequencies allow, and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compress/frequencies.hpp"

namespace sparsewire {

// The code is the final states, of 32 bits each, then words of 16 bits in the order in which the
// decoder takes them; all little-endian. Symbol i belongs to state i % states: several states keep
// a processor busy, one costs the least.

constexpr std::size_t rans_states(std::size_t count) { return count < 65536 ? 1 : 8; }

// No code of `count` symbols is longer.
constexpr std::size_t rans_bound(std::size_t count) { return 2 * count + 4 * rans_states(count); }

// Writes the code to the memory before `end` and returns where it begins. No symbol that occurs has
// a frequency of zero or of the total.
std::byte* rans_encode(const Frequencies& frequencies, const std::uint8_t* symbols,
                       std::size_t count, std::byte* end);

// Reads the code of `count` symbols and returns where it ends; null where [in, end) does not start
// with one. Whatever the bytes are, symbols have frequencies that are not zero.
const std::byte* rans_decode(const Frequencies& frequencies, const std::byte* in,
                             const std::byte* end, std::uint8_t* symbols, std::size_t count);

}  // namespace sparsewire
