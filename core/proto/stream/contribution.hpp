// Segments as they are made, and contributions: segments that were checked and made ready to be
// read, with values as the tensor has them, whatever the codec they came in.
#pragma once

#include <cstring>
#include <optional>

#include "base/bitmap.hpp"
#include "base/bytes.hpp"
#include "kernels/kernels.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

struct Segment {
  wire::Format format = wire::Format::empty;
  Codec codec = Codec::raw;
  Bytes payload;
};

// A segment of blocks, or a dense one if these are all blocks; write(values, count) writes their
// values.
template <typename Write>
Segment segment_of_blocks(const wire::BlockBitmap& blocks, const BlockLayout& layout,
                          Write&& write) {
  const bool is_dense = all_set(blocks.data(), layout.blocks());
  const std::size_t head = is_dense ? 0 : wire::bitmap_bytes(layout);
  const std::size_t size = head + wire::packed_bytes(blocks, layout);
  auto owner = Bytes::allocate(size);
  if (!is_dense) wire::encode_bitmap(blocks, layout, owner.get());
  write(owner.get() + head, (size - head) / layout.element_size);
  return {is_dense ? wire::Format::dense : wire::Format::blocks, Codec::raw,
          Bytes::shared(std::move(owner), size)};
}

// A segment of `count` single elements; write(values) writes them.
template <typename Write>
Segment segment_of_elements(wire::Format format, const wire::ElementBitmap& elements,
                            std::size_t count, const BlockLayout& layout, Write&& write) {
  const std::size_t head = wire::positions_bytes(format, layout, count);
  const std::size_t size = head + count * layout.element_size;
  auto owner = Bytes::allocate(size);
  wire::encode_positions(format, elements, layout, owner.get());
  write(owner.get() + head);
  return {format, Codec::raw, Bytes::shared(std::move(owner), size)};
}

struct Contribution {
  Rank rank = kNoRank;
  Bytes payload;  // holds positions, and raw values
  Bytes decoded;  // holds other values
  wire::SegmentView values;

  std::size_t bytes() const { return payload.size() + decoded.size(); }
};

// An error if the payload is not what its format and codec say.
Result<Contribution> read_segment(Rank rank, Segment segment, const BlockLayout& layout);

// Writes the elements that the segment names to their places in the chunk at `out`. All others
// stay.
void write_named(const Contribution& contribution, const BlockLayout& layout, std::byte* out);

// Writes the chunk's every element to `out`.
void write_chunk(const Contribution& contribution, const BlockLayout& layout, std::byte* out);

// The same segment with its values in another codec, for float32 alone. Values that the codec
// cannot carry, such as a sum that became infinite, stay raw. `key` seeds stochastic rounding.
Segment encode_segment(const Segment& segment, Codec codec, const BlockLayout& layout,
                       std::uint64_t key);

// A key that differs for every segment of every operation.
std::uint64_t rounding_key(std::uint32_t seed, std::uint64_t seq, Rank rank, std::uint64_t chunk);

// Decodes the values of a view that was checked. They are in the returned memory or, if that is
// empty, still in the payload.
template <typename View>
Bytes decode_values_of(View& view) {
  if (view.codec == Codec::raw) return {};
  const std::size_t size = view.count * sizeof(float);
  auto owner = Bytes::allocate(size);
  decode_values(view.codec, view.values.data(), view.count, reinterpret_cast<float*>(owner.get()));
  Bytes decoded = Bytes::shared(std::move(owner), size);
  view.values = decoded.view();
  view.codec = Codec::raw;
  return decoded;
}

// A copy of the payload with `size` bytes, written by fill(out), in place of its last bytes,
// `values`.
template <typename Fill>
Bytes with_values(const Bytes& payload, std::span<const std::byte> values, std::size_t size,
                  Fill&& fill) {
  const std::size_t head = payload.size() - values.size();
  auto owner = Bytes::allocate(head + size);
  std::memcpy(owner.get(), payload.data(), head);
  fill(owner.get() + head);
  return Bytes::shared(std::move(owner), head + size);
}

// The payload with its float32 values in a codec; none if the codec cannot carry them.
std::optional<Bytes> with_encoded_values(const Bytes& payload, std::span<const std::byte> values,
                                         Codec codec, std::uint64_t key);

// Converts a raw segment, known to be well formed, to values of type `to`, which convert(out, in,
// count) writes.
template <typename Convert>
Segment converted(const Segment& segment, const BlockLayout& layout, DType to, Convert&& convert) {
  const auto view =
      wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
  const std::size_t size = view->count * element_size(to);
  return {segment.format, segment.codec,
          with_values(segment.payload, view->values, size,
                      [&](std::byte* out) { convert(out, view->values.data(), view->count); })};
}

}  // namespace sparsewire::proto
