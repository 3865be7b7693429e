// Makes groups of symbols, and takes them apart. A group is a number with the range's size as base;
// its first symbol is the lowest digit.
#include "compress/symbol_groups.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/bit_fields.hpp"

namespace sparsewire {
namespace {

constexpr std::size_t kMaxGroup = 8;

using Groups = std::array<std::array<std::uint8_t, kMaxGroup>, 256>;

constexpr std::uint64_t kEveryByte = 0x0101010101010101u;

// For a range of b symbols: the byte b^k at place size - 1 - k, for each k. Multiplied by a symbol
// in each byte, the products add up in byte size - 1, and no byte below overflows.
template <std::size_t size>
std::uint64_t weights_of(std::uint64_t range) {
  std::uint64_t weights = 0;
  std::uint64_t power = 1;
  for (std::size_t k = 0; k < size; ++k, power *= range) weights |= power << (8 * (size - 1 - k));
  return weights;
}

// Eight bytes are read for each group.
template <std::size_t size>
void group_whole(const std::uint8_t* symbols, std::size_t groups, SymbolRange range,
                 std::uint8_t* out) {
  const std::uint64_t weights = weights_of<size>(range.size);
  const std::uint64_t first = range.first * kEveryByte;
  for (std::size_t i = 0; i < groups; ++i) {
    const std::uint64_t eight = load_64(reinterpret_cast<const std::byte*>(symbols + i * size));
    out[i] = static_cast<std::uint8_t>((eight - first) * weights >> (8 * (size - 1)));
  }
}

// Eight bytes are stored for each group, and the next group overwrites those beyond its size.
template <std::size_t size>
void ungroup_whole(const Groups& table, const std::uint8_t* groups, std::size_t count,
                   std::uint8_t* symbols) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(symbols + i * size, table[groups[i]].data(), kMaxGroup);
  }
}

// How many groups have eight bytes of symbols from their start on; the last ones do not.
constexpr std::size_t roomy_groups(std::size_t symbols, std::size_t size) {
  return symbols < kMaxGroup ? 0 : (symbols - kMaxGroup) / size + 1;
}

// Calls visit.template operator()<size>() with a group's size.
template <typename Visit>
void with_size(std::size_t size, Visit visit) {
  switch (size) {
    case 2:
      return visit.template operator()<2>();
    case 3:
      return visit.template operator()<3>();
    case 4:
      return visit.template operator()<4>();
    case 5:
      return visit.template operator()<5>();
    case 8:
      return visit.template operator()<8>();
    default:
      return visit.template operator()<1>();
  }
}

Groups symbols_of_groups(SymbolRange range) {
  Groups table{};
  const std::size_t size = group_size(range);
  for (std::size_t group = 0; group < group_alphabet(range); ++group) {
    std::size_t left = group;
    for (std::size_t k = 0; k < size; ++k, left /= range.size) {
      table[group][k] = static_cast<std::uint8_t>(range.first + left % range.size);
    }
  }
  return table;
}

}  // namespace

SymbolRange range_of(const std::uint8_t* symbols, std::size_t count) {
  // In lanes, which vectorise.
  constexpr std::size_t kLanes = 32;
  std::uint8_t least[kLanes];
  std::uint8_t most[kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) least[lane] = most[lane] = symbols[0];
  std::size_t first = 0;
  for (; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint8_t symbol = symbols[first + lane];
      least[lane] = symbol < least[lane] ? symbol : least[lane];
      most[lane] = symbol > most[lane] ? symbol : most[lane];
    }
  }
  for (; first < count; ++first) {
    least[0] = std::min(least[0], symbols[first]);
    most[0] = std::max(most[0], symbols[first]);
  }
  const std::uint8_t lowest = *std::min_element(least, least + kLanes);
  return {lowest, std::size_t{*std::max_element(most, most + kLanes)} - lowest + 1};
}

void group_symbols(const std::uint8_t* symbols, std::size_t count, SymbolRange range,
                   std::uint8_t* groups) {
  const std::size_t size = group_size(range);
  const std::size_t roomy = roomy_groups(count, size);
  with_size(size, [&]<std::size_t each>() { group_whole<each>(symbols, roomy, range, groups); });
  for (std::size_t group = roomy; group < group_count(count, range); ++group) {
    std::size_t sum = 0;
    for (std::size_t i = std::min((group + 1) * size, count); i-- != group * size;) {
      sum = sum * range.size + symbols[i] - range.first;
    }
    groups[group] = static_cast<std::uint8_t>(sum);
  }
}

Counts count_in_groups(const Counts& groups, std::size_t count, SymbolRange range) {
  const Groups table = symbols_of_groups(range);
  const std::size_t size = group_size(range);
  Counts counts{};
  for (std::size_t group = 0; group < group_alphabet(range); ++group) {
    for (std::size_t k = 0; k < size; ++k) counts[table[group][k]] += groups[group];
  }
  const std::size_t filled = group_count(count, range) * size - count;
  counts[range.first] -= static_cast<std::uint32_t>(filled);
  return counts;
}

bool ungroup_symbols(const std::uint8_t* groups, std::size_t count, SymbolRange range,
                     std::uint8_t* symbols) {
  const std::size_t size = group_size(range);
  const Groups table = symbols_of_groups(range);
  const std::size_t roomy = roomy_groups(count, size);
  with_size(size, [&]<std::size_t each>() { ungroup_whole<each>(table, groups, roomy, symbols); });
  for (std::size_t i = roomy * size; i < count; ++i) symbols[i] = table[groups[i / size]][i % size];
  for (std::size_t i = count; i % size != 0; ++i) {
    if (table[groups[i / size]][i % size] != range.first) return false;
  }
  return true;
}

}  // namespace sparsewire
