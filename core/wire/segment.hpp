// A segment: the values that one rank sends of one chunk, read the same way in every format.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/block_layout.hpp"
#include "base/error.hpp"
#include "wire/frame.hpp"
#include "wire/limits.hpp"

namespace sparsewire::wire {

// One bit per block of a chunk; bits beyond the chunk's last block are zero.
using BlockBitmap = std::array<std::uint64_t, kMaxChunkElements / kMinBlock / 64>;

BlockBitmap full_bitmap(const BlockLayout& layout);

// The bitmap's size on the wire: whole 64-bit words, little endian.
std::size_t bitmap_bytes(const BlockLayout& layout);
void encode_bitmap(const BlockBitmap& bitmap, const BlockLayout& layout, std::byte* out);

// Bytes of the blocks whose bit is set, packed one behind the other.
std::size_t packed_bytes(const BlockBitmap& bitmap, const BlockLayout& layout);

struct SegmentView {
  BlockBitmap bitmap;                 // all ones where the segment is dense
  std::span<const std::byte> values;  // the packed blocks, inside the payload
};

// Checks that the payload is exactly what its format says; `values` points into `payload`.
Result<SegmentView> decode_segment(Format format, std::span<const std::byte> payload,
                                   const BlockLayout& layout);

}  // namespace sparsewire::wire
