// A static entropy code for small alphabets: quantising operators send it instead of one byte per
// symbol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sparsewire {

// The code is a chain of blocks of kEntropyBlock symbols each, the last one of what is left. A
// block is a byte that tells its form, and then
//   0, constant: the one symbol that occurs;
//   1, packed: every symbol in as many bits as the alphabet needs, from the low bits of bytes up;
//   2, coded: the frequencies and the rANS code of one state;
//   3, sparse: the common symbol, the number of others in 32 little-endian bits, their positions
//      (compress/positions.hpp), and a block of them;
//   4, wide: like 2, of many states;
//   5, grouped: the least symbol, how many from it on less 1, and a block of groups of symbols
//      (compress/symbol_groups.hpp).
// Sparse is for at most one other symbol in 256; packed is for what would not be shorter coded;
// grouped, which takes fewer steps, for many symbols whose code it makes hardly longer.
// Equal symbols make equal bytes on every machine.
inline constexpr std::size_t kEntropyBlock = std::size_t{1} << 20;

// Bytes that no code of `count` symbols exceeds.
std::size_t entropy_bound(std::size_t count);

// Writes the code of `count` symbols below `alphabet`, which is from 1 to 256, to `out`, and
// returns its size in bytes; none if a symbol is not below it.
std::optional<std::size_t> entropy_encode(const std::uint8_t* symbols, std::size_t count,
                                          std::size_t alphabet, std::byte* out);

// Reads `count` symbols, all of them below `alphabet`; true if exactly these `size` bytes are a
// code of so many. Whatever the bytes are, nothing outside is read or written.
bool entropy_decode(const std::byte* in, std::size_t size, std::size_t alphabet,
                    std::uint8_t* symbols, std::size_t count);

}  // namespace sparsewire
