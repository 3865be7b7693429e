// Changes to bitmaps of base/bitmap.hpp that drawing and decoding positions need.
#pragma once

#include <bit>

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

}  // namespace sparsewire
