// Codes of lists of numbers that are mostly small: gaps between positions, and steps of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sparsewire::weights {

// A number below 16 is its own symbol. The symbol of a larger one holds its length in bits and the
// two bits behind the leading one; the bits below these follow as they are. Symbols are entropy
// coded (compress/entropy.hpp), so a list costs about its entropy, whatever its scale.
//
// The code of a list is the size of the symbols' code in 32 little-endian bits, that code, and the
// low bits, from the low ones of each byte up.

// Appends the code of the numbers. There are fewer than 2^31.
void encode_numbers(std::span<const std::uint64_t> numbers, std::vector<std::byte>& out);

// Reads `count` numbers at the start of [in, end) into `numbers`, and returns where their code
// ends; null where there is none. Whatever the bytes are, nothing outside is read, and memory stays
// in proportion to `count`.
const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint64_t>& numbers);

}  // namespace sparsewire::weights
