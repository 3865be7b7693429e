// Decodes segments once, when they arrive, and encodes them once, before they go.
#include "proto/stream/contribution.hpp"

#include <cstring>
#include <vector>

#include "kernels/quantise.hpp"
#include "wire/codec.hpp"

namespace sparsewire::proto {
namespace {

// The finaliser of MurmurHash3: every bit of the input reaches every bit of the output.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 33) * 0xFF51AFD7ED558CCDu;
  value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53u;
  return value ^ value >> 33;
}

}  // namespace

Result<Contribution> read_segment(Rank rank, Segment segment, const BlockLayout& layout) {
  auto view = wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
  if (!view) return view.error();
  Contribution contribution{rank, std::move(segment.payload), {}, *std::move(view)};
  wire::SegmentView& values = contribution.values;
  if (values.codec == Codec::raw) return contribution;
  if (layout.element_size != sizeof(float)) {
    return protocol_error("segment: a codec for other than float32");
  }
  const std::size_t size = values.count * sizeof(float);
  auto owner = Bytes::allocate(size);
  decode_values(values.codec, values.values.data(), values.count,
                reinterpret_cast<float*>(owner.get()));
  contribution.decoded = Bytes::shared(std::move(owner), size);
  values.values = contribution.decoded.view();
  values.codec = Codec::raw;
  return contribution;
}

Segment encode_segment(const Segment& segment, Codec codec, const BlockLayout& layout,
                       std::uint64_t key) {
  if (codec == Codec::raw || segment.codec != Codec::raw) return segment;
  const std::span<const std::byte> payload = segment.payload.view();
  const auto view = wire::decode_segment(segment.format, segment.codec, payload, layout);
  const std::size_t head = payload.size() - view->values.size();
  const std::size_t size = head + wire::values_bytes(codec, layout.element_size, view->count);
  auto owner = Bytes::allocate(size);
  std::memcpy(owner.get(), payload.data(), head);
  // Behind 16-bit indices the values need not be aligned, and there they are few.
  std::vector<float> values(view->count);
  std::memcpy(values.data(), view->values.data(), view->values.size());
  if (!encode_values(codec, values.data(), view->count, key, owner.get() + head)) return segment;
  return {segment.format, codec, Bytes::shared(std::move(owner), size)};
}

std::uint64_t rounding_key(std::uint32_t seed, std::uint64_t seq, Rank rank, std::uint64_t chunk) {
  const auto who = static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank));
  return mix(mix(mix(who << 32 | seed) ^ seq) ^ chunk);
}

}  // namespace sparsewire::proto
