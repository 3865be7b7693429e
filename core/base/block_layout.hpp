// How an array is cut into blocks, the unit in which zeros are left out.
#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace sparsewire {

// `count` elements of `element_size` bytes in blocks of `block` elements; the last may be partial.
struct BlockLayout {
  std::size_t count;
  std::size_t element_size;
  std::size_t block;

  constexpr std::size_t blocks() const { return ceil_div(count, block); }
  constexpr std::size_t bytes() const { return count * element_size; }
  constexpr std::size_t block_bytes() const { return block * element_size; }

  bool operator==(const BlockLayout&) const = default;
};

}  // namespace sparsewire
