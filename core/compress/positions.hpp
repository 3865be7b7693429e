// Sets of positions, as the set bits of a bitmap: drawn from a seed that both ends know, or in a
// code of little more bits than log2 of the number of such sets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bitmap.hpp"

namespace sparsewire {

inline void set_bit(std::uint64_t* bitmap, std::size_t index) {
  bitmap[index / kBitmapWordBits] |= std::uint64_t{1} << (index % kBitmapWordBits);
}

inline void clear_bit(std::uint64_t* bitmap, std::size_t index) {
  bitmap[index / kBitmapWordBits] &= ~(std::uint64_t{1} << (index % kBitmapWordBits));
}

// Calls visit(index) for each set bit below `count`, ascending; it may clear that bit.
template <typename Visit>
inline void for_each_set(const std::uint64_t* bitmap, std::size_t count, Visit&& visit) {
  for (std::size_t word = 0; word < bitmap_words(count); ++word) {
    for (std::uint64_t rest = bitmap[word]; rest != 0; rest &= rest - 1) {
      visit(word * kBitmapWordBits + static_cast<std::size_t>(std::countr_zero(rest)));
    }
  }
}

// The bits of word `word` that stand for one of `count` elements.
inline std::uint64_t used_bits(std::size_t word, std::size_t count) {
  const std::size_t used = count - word * kBitmapWordBits;
  return used < kBitmapWordBits ? (std::uint64_t{1} << used) - 1 : ~std::uint64_t{0};
}

inline void invert(std::uint64_t* bitmap, std::size_t count) {
  for (std::size_t word = 0; word < bitmap_words(count); ++word) {
    bitmap[word] = ~bitmap[word] & used_bits(word, count);
  }
}

// Rand-k: sets k bits of the bitmap, k <= count, and clears the others, up to the end of the last
// word. Every set of k positions is equally likely, and depends on the arguments alone.
void rand_k(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap);

// The code of k of `count` positions is, for each, the number of positions between it and the one
// before, in a Rice code: the quotient by 2^b as so many zeros and a one, then the remainder in b
// bits. b follows from `count` and k. If k is more than half, the positions that are not in the set
// are coded. Bits fill bytes from the low ones up.

// Bytes that no code exceeds.
std::size_t positions_bound(std::size_t count, std::size_t k);

// Writes the code of a bitmap with k set bits, none of them from `count` on; returns its bytes.
std::size_t encode_positions(const std::uint64_t* bitmap, std::size_t count, std::size_t k,
                             std::byte* out);

// Reads a code of k positions below `count`, k <= count, at the start of [in, end), writes the
// bitmap, up to the end of the last word, and returns where the code ends; null if there is none.
// `in` is not null. Whatever the bytes are, nothing outside is read or written.
const std::byte* decode_positions(const std::byte* in, const std::byte* end, std::size_t count,
                                  std::size_t k, std::uint64_t* bitmap);

}  // namespace sparsewire
