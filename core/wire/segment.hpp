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

// One bit per element of a chunk; bits beyond the last element are zero.
using ElementBitmap = std::array<std::uint64_t, kMaxChunkElements / 64>;

// What the positions of `count` elements take in a format by element, and writing them.
std::size_t positions_bytes(Format format, const BlockLayout& layout, std::size_t count);
void encode_positions(Format format, const ElementBitmap& elements, const BlockLayout& layout,
                      std::byte* out);

// Bytes of the blocks whose bit is set, packed one behind the other.
std::size_t packed_bytes(const BlockBitmap& bitmap, const BlockLayout& layout);

struct SegmentView {
  Format format;
  BlockBitmap bitmap;                    // all ones where dense; not used by element
  std::span<const std::byte> positions;  // by element: what encode_positions wrote
  std::span<const std::byte> values;     // the packed blocks or elements, as the codec has them
  std::size_t count = 0;                 // of the values
  Codec codec = Codec::raw;
};

// The elements that the segment names, in any format: all of a block where it names blocks.
ElementBitmap elements_of(const SegmentView& segment, const BlockLayout& layout);

// Checks that the payload is exactly what its format says; the view points into `payload`.
Result<SegmentView> decode_segment(Format format, Codec codec, std::span<const std::byte> payload,
                                   const BlockLayout& layout);

}  // namespace sparsewire::wire
