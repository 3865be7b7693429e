// Rice codes of lists of numbers: next to nothing beside the numbers, so they suit short lists, and
// gaps between positions that are drawn evenly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/bit_fields.hpp"

namespace sparsewire::weights {

// A number is its quotient by 2^low as so many zeros and a one, then its low bits.
struct Rice {
  unsigned low;
  std::uint64_t bits;  // of all numbers

  std::size_t bytes() const { return (bits + 7) / 8; }
};

inline constexpr unsigned kRiceLowMax = 31;

template <typename Number>
Rice rice_with(unsigned low, std::span<const Number> numbers) {
  std::uint64_t bits = numbers.size() * (std::uint64_t{low} + 1);
  for (const Number number : numbers) bits += number >> low;
  return {low, bits};
}

// The shortest of all codes of numbers whose lengths vary little around their mean's.
template <typename Number>
Rice best_rice(std::span<const Number> numbers) {
  Rice best = rice_with(0, numbers);
  for (unsigned low = 1; low <= kRiceLowMax; ++low) {
    const Rice next = rice_with(low, numbers);
    if (next.bits >= best.bits) break;
    best = next;
  }
  return best;
}

template <typename Number>
void put_rice(const Rice& rice, std::span<const Number> numbers, std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  out.resize(before + rice.bytes() + sizeof(std::uint64_t));
  BitWriter bits(out.data() + before);
  const Number mask = (Number{1} << rice.low) - 1;
  for (const Number number : numbers) {
    bits.put_unary(number >> rice.low);
    bits.put(static_cast<std::uint32_t>(number & mask), rice.low);
  }
  bits.finish();
  out.resize(before + rice.bytes());
}

// Reads `count` numbers; returns where their code ends, or null where there is none.
template <typename Number>
const std::byte* take_rice(unsigned low, const std::byte* in, const std::byte* end,
                           std::size_t count, std::vector<Number>& numbers) {
  constexpr std::uint64_t kMost = std::numeric_limits<Number>::max();
  BitReader bits(in, end);
  numbers.resize(count);
  for (Number& number : numbers) {
    const std::uint64_t quotient = bits.get_unary();
    if (bits.failed() || quotient > kMost >> low) return nullptr;
    number = static_cast<Number>(quotient << low | bits.get(low));
  }
  return bits.finish();
}

}  // namespace sparsewire::weights
