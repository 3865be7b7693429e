// One block of an entropy code: the choice of its form, and the checks of what is read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Bytes that the code of a block of `count` symbols, at least one, does not exceed.
constexpr std::size_t entropy_block_bound(std::size_t count) { return count + 2; }

// Writes the code of `count` symbols, from 1 to 2^20, to `out`, and returns where it ends; null
// where a symbol is not below `alphabet`.
std::byte* encode_block(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out);

// Reads `count` symbols, all of them below `alphabet`, and returns where their code ends; null
// where [in, end) does not start with one.
const std::byte* decode_block(const std::byte* in, const std::byte* end, std::size_t alphabet,
                              std::uint8_t* symbols, std::size_t count);

}  // namespace sparsewire
