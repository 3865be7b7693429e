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
// low bits, from the low ones of each byte up. Or, where that is shorter, 32 bits of which the
// highest is set and the others are how many bits are low, and a Rice code (weights/rice.hpp). It
// is the same for numbers of 32 and 64 bits.

// Appends the code of the numbers. There are fewer than 2^31.
void encode_numbers(std::span<const std::uint32_t> numbers, std::vector<std::byte>& out);
void encode_numbers(std::span<const std::uint64_t> numbers, std::vector<std::byte>& out);

// About how many bytes that takes, from a sample: mostly less than they are.
std::size_t estimate_numbers(std::span<const std::uint32_t> numbers);
std::size_t estimate_numbers(std::span<const std::uint64_t> numbers);

// Reads `count` numbers at the start of [in, end) into `numbers`, and returns where their code
// ends; null where there is none, or a number that does not fit. Whatever the bytes are, nothing
// outside is read, and memory stays in proportion to `count`.
const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint32_t>& numbers);
const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint64_t>& numbers);

}  // namespace sparsewire::weights
