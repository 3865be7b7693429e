// Makes packed coordinates from a sparse vector, adds them up, and unpacks them.
#pragma once

#include "proto/sparse/sparse_tensor.hpp"
#include "proto/stream/owner/reduce.hpp"
#include "proto/stream/source.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

// A piece of one chunk as a segment of the stream.
inline Segment segment_of(const wire::Piece& piece) {
  return {piece.format, piece.codec, piece.payload};
}

// The density up to which coordinates are packed.
inline constexpr double kPackedDensity = 1.0 / 32;

// Whether packing pays for so many elements. With more, a bitmap is smaller; with too few, the
// counts of chunks would be most of the piece.
constexpr bool suits_packing(std::uint64_t elements, const ChunkRange& range) {
  const auto places = static_cast<double>(range.chunks() * wire::kMaxChunkElements);
  return static_cast<double>(elements) <= kPackedDensity * places && elements >= range.chunks() / 4;
}

// Packs the indices [from, to) of the tensor, all of which lie in the range.
wire::Piece pack_elements(const SparseTensor& tensor, std::uint64_t from, std::uint64_t to,
                          const ChunkGrid& grid, const ChunkRange& range);

// A sink that takes packed coordinates, too.
class PartSink : public Sink {
 public:
  // Takes a piece in any format.
  Status take(const wire::Piece& piece, const ChunkRange& range) {
    const bool is_packed = piece.format == wire::Format::packed;
    return is_packed ? write_packed(piece, range) : write(piece.chunk, segment_of(piece));
  }
  virtual Status write_packed(const wire::Piece& piece, const ChunkRange& range) = 0;
  // Tells that nothing more comes of these chunks.
  virtual void pass(const ChunkRange&) {}
};

// Packed values that were checked and decoded: they are as the vector has them.
struct PackedRead {
  wire::PackedView view;
  Bytes payload;  // holds all of it
  Bytes decoded;  // holds values that came in a codec
};
Result<PackedRead> read_packed(const wire::Piece& piece, const ChunkGrid& grid,
                               const ChunkRange& range);

// The same for a piece that was checked before.
PackedRead read_packed_again(const wire::Piece& piece, const ChunkRange& range);

// Adds values of `dtype` in the given order; the sums get the type of the reduction.
wire::Piece add_packed(const std::vector<PackedRead>& parts, DType dtype,
                       const Reduction& reduction, const ChunkRange& range, Scratch& scratch);

// encode_segment() for a packed piece.
wire::Piece encode_packed(const wire::Piece& piece, Codec codec, const ChunkRange& range,
                          std::uint64_t key);

// The same as one piece of coordinates per chunk.
std::vector<wire::Piece> unpack_pieces(const PackedRead& packed, const ChunkRange& range,
                                       std::size_t element_size);

}  // namespace sparsewire::proto
