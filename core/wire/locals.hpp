// Indices inside a chunk, as they lie on the wire: 16 bits each, at any address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/little_endian.hpp"

namespace sparsewire::wire {

// Whether each is greater than the one before. Wrong ones are gathered in a number as wide as they
// are, which the vectoriser makes one pass without a branch of.
inline bool ascend(const std::byte* locals, std::size_t count) {
  std::uint16_t wrong = 0;
  for (std::size_t i = 1; i < count; ++i) {
    const auto before = load<std::uint16_t>(locals + 2 * i - 2);
    const auto here = load<std::uint16_t>(locals + 2 * i);
    wrong = static_cast<std::uint16_t>(wrong | (here <= before ? 1 : 0));
  }
  return wrong == 0;
}

}  // namespace sparsewire::wire
