// The elements of a chunk that differ from their base, and by which steps.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"
#include "weights/elements.hpp"

namespace sparsewire::weights {

// Arrays have room for all elements, of which only what is used takes memory.
template <typename T>
struct Found {
  std::size_t changed = 0;
  std::unique_ptr<std::uint32_t[]> positions;  // ascending
  std::unique_ptr<NumberOf<T>[]> steps;

  std::span<const std::uint32_t> all_positions() const { return {positions.get(), changed}; }
  std::span<const NumberOf<T>> all_steps() const { return {steps.get(), changed}; }
};

// Elements of a tile: both of its versions stay in the nearest cache while steps are read.
template <typename T>
inline constexpr std::size_t kTile = (std::size_t{1} << 14) / sizeof(T);

// How many positions are written at once.
inline constexpr int kAtOnce = 8;

// Writes the positions of the set bits from `to` on, and room for kAtOnce more behind them; returns
// where they end. That many are written without a branch.
inline std::uint32_t* put_set_bits(std::uint64_t word, std::uint32_t first, std::uint32_t* to) {
  const auto set = static_cast<int>(bits_set(word));
  for (int done = 0; done < set; done += kAtOnce) {
    for (int i = 0; i < kAtOnce; ++i, word &= word - 1) {
      to[done + i] = first + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
  return to + set;
}

template <typename T>
void put_steps(Numbers numbers, const std::byte* base, const std::byte* fresh,
               std::span<const std::uint32_t> positions, NumberOf<T>* to) {
  for (const std::uint32_t at : positions) {
    *to++ = number_of(step_between(load<T>(base, at), load<T>(fresh, at), numbers));
  }
}

template <typename T>
Found<T> find_changes(Numbers numbers, const std::byte* base, const std::byte* fresh,
                      std::size_t count) {
  const auto differing = kernels().compress.differing[std::countr_zero(sizeof(T))];
  std::array<std::uint64_t, kTile<T> / kBitmapWordBits> bitmap;
  Found<T> found{0, std::make_unique_for_overwrite<std::uint32_t[]>(count + kAtOnce),
                 std::make_unique_for_overwrite<NumberOf<T>[]>(count)};
  for (std::size_t first = 0; first < count; first += kTile<T>) {
    const std::size_t length = std::min(kTile<T>, count - first);
    const std::size_t at = first * sizeof(T);
    const std::size_t changed = differing(base + at, fresh + at, length, bitmap.data());
    if (changed == 0) continue;
    std::uint32_t* const positions = found.positions.get() + found.changed;
    std::uint32_t* end = positions;
    for (std::size_t word = 0; word < bitmap_words(length); ++word) {
      const std::size_t begin = first + word * kBitmapWordBits;
      end = put_set_bits(bitmap[word], static_cast<std::uint32_t>(begin), end);
    }
    put_steps<T>(numbers, base, fresh, {positions, end}, found.steps.get() + found.changed);
    found.changed += changed;
  }
  return found;
}

// How many elements are between each position and the one before.
inline std::vector<std::uint32_t> gaps_of(std::span<const std::uint32_t> positions) {
  std::vector<std::uint32_t> gaps(positions.size());
  if (!positions.empty()) gaps[0] = positions[0];
  for (std::size_t i = 1; i < gaps.size(); ++i) gaps[i] = positions[i] - positions[i - 1] - 1;
  return gaps;
}

}  // namespace sparsewire::weights
