// Symbols of a narrow range, grouped into bytes, as many as fit: an entropy code then takes fewer
// steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "kernels/rans.hpp"

namespace sparsewire {

// `size` symbols from `first` on, from 1 to 256.
struct SymbolRange {
  std::uint8_t first;
  std::size_t size;
};

// The least range that has all of the symbols, at least one.
SymbolRange range_of(const std::uint8_t* symbols, std::size_t count);

// How many symbols of a range make a group: a byte must hold each of their combinations; at most 8.
constexpr std::size_t group_size(SymbolRange range) {
  std::size_t size = 1;
  std::size_t combinations = range.size;
  while (size < 8 && combinations * range.size <= 256) {
    combinations *= range.size;
    ++size;
  }
  return size;
}

// The number of combinations, which is the alphabet of groups.
constexpr std::size_t group_alphabet(SymbolRange range) {
  std::size_t combinations = 1;
  for (std::size_t i = group_size(range); i != 0; --i) combinations *= range.size;
  return combinations;
}

// How many groups symbols make: the last one is filled up with the first symbol of the range.
constexpr std::size_t group_count(std::size_t symbols, SymbolRange range) {
  return ceil_div(symbols, group_size(range));
}

// Writes the groups of `count` symbols, all of them in the range.
void group_symbols(const std::uint8_t* symbols, std::size_t count, SymbolRange range,
                   std::uint8_t* groups);

// How often each symbol occurs among `count`, computed from the counts of their groups.
Counts count_in_groups(const Counts& groups, std::size_t count, SymbolRange range);

// Writes `count` symbols again; false if the last group is not filled up as it should be. All
// groups are below group_alphabet.
bool ungroup_symbols(const std::uint8_t* groups, std::size_t count, SymbolRange range,
                     std::uint8_t* symbols);

}  // namespace sparsewire
