// A segment that was checked and made ready to be read: its values are as the tensor has them,
// whatever the codec they came in.
#pragma once

#include "proto/stream/source.hpp"
#include "proto/stream/values.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

struct Contribution {
  Rank rank = kNoRank;
  Bytes payload;  // keeps positions, and raw values, in place
  Bytes decoded;  // keeps other values in place
  wire::SegmentView values;

  std::size_t bytes() const { return payload.size() + decoded.size(); }
};

// An error where the payload is not what its format and codec say.
Result<Contribution> read_segment(Rank rank, Segment segment, const BlockLayout& layout);

// Writes what the segment names to its places in the chunk at `target`; all else there stays.
void write_named(const Contribution& contribution, const BlockLayout& layout, std::byte* target);

// The same segment with its values in another codec, for float32 alone. Values that the codec
// cannot carry, such as a sum that became infinite, stay raw. `key` seeds stochastic rounding.
Segment encode_segment(const Segment& segment, Codec codec, const BlockLayout& layout,
                       std::uint64_t key);

// A raw segment that is known to be well formed, with values of type `to`, which
// convert(out, in, count) writes.
template <typename Convert>
Segment converted(const Segment& segment, const BlockLayout& layout, DType to, Convert&& convert) {
  const auto view =
      wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
  const std::size_t size = view->count * element_size(to);
  return {segment.format, segment.codec,
          with_values(segment.payload, view->values, size,
                      [&](std::byte* out) { convert(out, view->values.data(), view->count); })};
}

// A key that differs for every segment of every operation.
std::uint64_t rounding_key(std::uint32_t seed, std::uint64_t seq, Rank rank, std::uint64_t chunk);

}  // namespace sparsewire::proto
