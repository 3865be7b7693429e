// Bitmaps over blocks: one bit per block in 64-bit words, block i at bit i % 64 of word i / 64.
// Bits from `count` on are ignored here, but the writer of a bitmap leaves them zero.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace sparsewire {

inline constexpr std::size_t kBitmapWordBits = 64;

constexpr std::size_t bitmap_words(std::size_t count) {
  return (count + kBitmapWordBits - 1) / kBitmapWordBits;
}

constexpr bool test_bit(const std::uint64_t* bitmap, std::size_t index) {
  return (bitmap[index / kBitmapWordBits] >> (index % kBitmapWordBits)) & 1;
}

// Position of the first bit equal to `value` in [from, count), or `count` if there is none.
constexpr std::size_t find_bit(const std::uint64_t* bitmap, std::size_t from, std::size_t count,
                               bool value) {
  const std::uint64_t flip = value ? 0 : ~std::uint64_t{0};
  while (from < count) {
    const std::uint64_t rest = (bitmap[from / kBitmapWordBits] ^ flip) >> (from % kBitmapWordBits);
    if (rest != 0) {
      return std::min(count, from + static_cast<std::size_t>(std::countr_zero(rest)));
    }
    from = (from / kBitmapWordBits + 1) * kBitmapWordBits;
  }
  return count;
}

// Calls visit(first, length) for every maximal run of bits equal to `value`, in order.
template <bool value = true, typename Visit>
constexpr void for_each_run(const std::uint64_t* bitmap, std::size_t count, Visit&& visit) {
  std::size_t first = find_bit(bitmap, 0, count, value);
  while (first < count) {
    const std::size_t last = find_bit(bitmap, first, count, !value);
    visit(first, last - first);
    first = find_bit(bitmap, last, count, value);
  }
}

// Sets the bits [first, first + length).
constexpr void set_range(std::uint64_t* bitmap, std::size_t first, std::size_t length) {
  const std::size_t end = first + length;
  while (first < end) {
    const std::size_t from = first % kBitmapWordBits;
    const std::size_t bits = std::min(kBitmapWordBits - from, end - first);
    const std::uint64_t ones = ~std::uint64_t{0} >> (kBitmapWordBits - bits);
    bitmap[first / kBitmapWordBits] |= ones << from;
    first += bits;
  }
}

// Sets the bits index(0) < ... < index(count - 1); later bits are clear before. A word is stored
// for each of its bits, and never read back: a read would wait for the store before.
template <typename Index>
constexpr void set_ascending(std::uint64_t* bitmap, std::size_t count, Index&& index) {
  if (count == 0) return;
  std::size_t word = index(0) / kBitmapWordBits;
  std::uint64_t bits = bitmap[word];
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = index(i);
    const std::size_t next = at / kBitmapWordBits;
    const std::uint64_t kept = next == word ? bits : 0;
    bits = kept | std::uint64_t{1} << (at % kBitmapWordBits);
    word = next;
    bitmap[word] = bits;
  }
}

constexpr bool all_set(const std::uint64_t* bitmap, std::size_t count) {
  return find_bit(bitmap, 0, count, false) == count;
}

// Bits set in a word. On processors without an instruction for it, the library call behind
// std::popcount is slower than this, and a loop over it cannot be vectorised.
constexpr std::uint64_t bits_set(std::uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
  return (word * 0x0101010101010101u) >> 56;
}

constexpr std::size_t count_set(const std::uint64_t* bitmap, std::size_t count) {
  std::size_t total = 0;
  for (std::size_t word = 0; word < count / kBitmapWordBits; ++word) {
    total += bits_set(bitmap[word]);
  }
  if (const std::size_t rest = count % kBitmapWordBits; rest != 0) {
    const std::uint64_t low = (std::uint64_t{1} << rest) - 1;
    total += bits_set(bitmap[count / kBitmapWordBits] & low);
  }
  return total;
}

}  // namespace sparsewire
