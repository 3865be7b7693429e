// A segment: the values that one rank sends of one chunk, read the same way in every format; packed
// coordinates, the elements of many chunks in one piece; and bundles of both, as workers send them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/types.hpp"
#include "wire/frame.hpp"
#include "wire/layout.hpp"

namespace sparsewire::wire {

// One bit per block of a chunk; bits beyond the chunk's last block are zero.
using BlockBitmap = std::array<std::uint64_t, kMaxChunkElements / kMinBlock / 64>;

BlockBitmap full_bitmap(const BlockLayout& layout);

// The bitmap's size on the wire: whole 64-bit words, little endian.
std::size_t bitmap_bytes(const BlockLayout& layout);
void encode_bitmap(const BlockBitmap& bitmap, const BlockLayout& layout, std::byte* out);

// One bit per element of a chunk; bits beyond the last element are zero.
using ElementBitmap = std::array<std::uint64_t, kMaxChunkElements / 64>;

// The bytes of the positions of `count` elements in a format by element; and a writer of them.
std::size_t positions_bytes(Format format, const BlockLayout& layout, std::size_t count);
void encode_positions(Format format, const ElementBitmap& elements, const BlockLayout& layout,
                      std::byte* out);

// Bytes of the blocks whose bit is set, packed one after the other.
std::size_t packed_bytes(const BlockBitmap& bitmap, const BlockLayout& layout);

struct SegmentView {
  Format format;
  BlockBitmap bitmap;                    // all ones if dense; not used by element
  std::span<const std::byte> positions;  // by element: what encode_positions wrote
  std::span<const std::byte> values;     // the packed blocks or elements, as the codec has them
  std::size_t count = 0;                 // of the values
  Codec codec = Codec::raw;
};

// The elements that the segment names, in any format. If it names blocks: all elements of these.
ElementBitmap elements_of(const SegmentView& segment, const BlockLayout& layout);

// Checks that the payload is exactly what its format says; the view points into `payload`.
Result<SegmentView> decode_segment(Format format, Codec codec, std::span<const std::byte> payload,
                                   const BlockLayout& layout);

// Packed coordinates. If a chunk holds few elements, work per chunk would cost more than work per
// element. Byte layout, little endian: for each of the part's chunks the number of its elements,
// u32; the indices of all elements inside their chunks, u16, ascending within each chunk; their
// values, as the codec has them.
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

// The view of a payload that was checked before.
PackedView view_packed(Codec codec, std::span<const std::byte> payload, std::size_t chunks);

// An index inside a chunk, as it lies on the wire: 16 bits, at any address.
inline std::uint16_t local_at(const std::byte* locals, std::size_t i) {
  return load<std::uint16_t>(locals + 2 * i);
}

// Checks that the payload is what the format says. `last` is the layout of the last chunk; all
// other chunks are full.
Result<PackedView> decode_packed(Codec codec, std::span<const std::byte> payload,
                                 std::size_t chunks, std::size_t chunk_elements,
                                 const BlockLayout& last);

// One segment of a bundle. Byte layout, little endian: chunk u64, format u8, codec u8, zero u16,
// size u32, then the payload.
struct Piece {
  std::uint64_t chunk = 0;
  Format format = Format::empty;
  Codec codec = Codec::raw;
  Bytes payload;
};
inline constexpr std::size_t kPieceHeaderBytes = 16;

// Bundles are cut at this size; a single large piece may exceed it.
inline constexpr std::size_t kBundleBytes = 1u << 20;
inline constexpr std::size_t kMaxBundleBytes = 1u << 30;

// Encodes as many of the pieces as fit, from `first` on, and moves `first` past them.
Bytes encode_bundle(std::span<const Piece> pieces, std::size_t& first);

// Appends the pieces to `out`; their payloads share the bundle's memory. Chunks must ascend, also
// from what is there already, and no piece may be empty. The payloads themselves are not checked.
Status decode_bundle(const Bytes& bundle, std::vector<Piece>& out);

}  // namespace sparsewire::wire
