// Range asymmetric numeral systems (rANS; Duda, 2013): symbols to nearly as few bits as their
// frequencies allow, and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compress/frequencies.hpp"
#include "kernels/compress/rans_step.hpp"

namespace sparsewire {

// The code is the final states, of 32 bits each, then words of 16 bits in the order in which the
// decoder takes them; all little-endian. Symbol i belongs to state i % states: many states keep a
// processor busy, one costs the least.
enum class Rans : std::uint8_t { narrow = 0, wide };

constexpr std::size_t rans_states(Rans rans) { return rans == Rans::wide ? kRansLanes : 1; }

// Bytes that no code of `count` symbols exceeds, and room to write whole vectors.
constexpr std::size_t rans_bound(Rans rans, std::size_t count) {
  return 2 * count + 4 * rans_states(rans) + 16;
}

// Writes the code to the memory before `end`, of rans_bound bytes, and returns where it begins. No
// symbol that occurs has a frequency of zero or of the total.
std::byte* rans_encode(Rans rans, const Frequencies& frequencies, const std::uint8_t* symbols,
                       std::size_t count, std::byte* end);

// Reads the code of `count` symbols and returns where it ends; null where [in, end) does not start
// with one. Whatever the bytes are, symbols have frequencies that are not zero.
const std::byte* rans_decode(Rans rans, const Frequencies& frequencies, const std::byte* in,
                             const std::byte* end, std::uint8_t* symbols, std::size_t count);

}  // namespace sparsewire
