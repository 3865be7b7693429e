// Packed coordinates: the elements of many chunks in one piece. Where a chunk holds few elements,
// what is done once per chunk would cost more than what is done once per element.
#pragma once

#include <span>
#include <vector>

#include "base/block_layout.hpp"
#include "base/codec.hpp"
#include "base/error.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: for each of the part's chunks how many elements it holds, u32; their
// indices inside their chunks, u16, ascending within each chunk; their values, as the codec has
// them.
struct PackedView {
  std::span<const std::byte> counts;
  std::span<const std::byte> locals;
  std::span<const std::byte> values;
  std::size_t count = 0;  // elements
  Codec codec = Codec::raw;

  std::size_t chunks() const { return counts.size() / 4; }
  std::size_t count_in(std::size_t chunk) const;
};

std::size_t packed_positions_bytes(std::size_t chunks, std::size_t count);

// The view alone, of a payload that was checked before.
PackedView view_packed(Codec codec, std::span<const std::byte> payload, std::size_t chunks);

// Checks that the payload is what the format says; `last` is the layout of the last chunk, all
// others are full.
Result<PackedView> decode_packed(Codec codec, std::span<const std::byte> payload,
                                 std::size_t chunks, std::size_t chunk_elements,
                                 const BlockLayout& last);

}  // namespace sparsewire::wire
