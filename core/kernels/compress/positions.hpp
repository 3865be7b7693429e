// A code for sets of positions: the set bits of a bitmap, in little more than log2 of the number of
// such sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// The code of k of `count` positions is, for each one, the number of positions between it and the
// one before, in a Rice code: the quotient by 2^b as so many zeros and a one, then b bits of the
// rest; b follows from `count` and k. Where k is more than half, the positions that are not in the
// set are coded. Bits fill bytes from the low ones up.

// Bytes that no code exceeds.
std::size_t positions_bound(std::size_t count, std::size_t k);

// Writes the code of a bitmap with k set bits, none of them from `count` on; returns its bytes.
std::size_t encode_positions(const std::uint64_t* bitmap, std::size_t count, std::size_t k,
                             std::byte* out);

// Reads a code of k positions below `count`, k <= count, at the start of [in, end), writes the
// bitmap, up to the end of the last word, and returns where the code ends; null where there is
// none. `in` is not null. Whatever the bytes are, nothing outside is read or written.
const std::byte* decode_positions(const std::byte* in, const std::byte* end, std::size_t count,
                                  std::size_t k, std::uint64_t* bitmap);

}  // namespace sparsewire
