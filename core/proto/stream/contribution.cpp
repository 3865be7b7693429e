// Decodes segments once, when they arrive, and encodes them once, before they go.
#include "proto/stream/contribution.hpp"

#include <vector>

#include "kernels/blocks.hpp"
#include "kernels/kernels.hpp"
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
  contribution.decoded = decode_values_of(contribution.values);
  return contribution;
}

void write_named(const Contribution& contribution, const BlockLayout& layout, std::byte* out) {
  const wire::SegmentView& view = contribution.values;
  if (wire::is_by_element(view.format)) {
    const wire::ElementBitmap elements = wire::elements_of(view, layout);
    kernels().scatter(out, view.values.data(), layout.element_size, bitmap_words(layout.count),
                      elements.data());
  } else {
    unpack(out, view.values.data(), layout.count, layout.element_size, layout.block,
           view.bitmap.data());
  }
}

void write_chunk(const Contribution& contribution, const BlockLayout& layout, std::byte* out) {
  const bool has_gaps = contribution.values.format != wire::Format::dense;
  if (has_gaps) std::memset(out, 0, layout.bytes());
  write_named(contribution, layout, out);
}

Segment encode_segment(const Segment& segment, Codec codec, const BlockLayout& layout,
                       std::uint64_t key) {
  if (codec == Codec::raw || segment.codec != Codec::raw) return segment;
  const auto view =
      wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
  auto encoded = with_encoded_values(segment.payload, view->values, codec, key);
  return encoded ? Segment{segment.format, codec, *std::move(encoded)} : segment;
}

std::uint64_t rounding_key(std::uint32_t seed, std::uint64_t seq, Rank rank, std::uint64_t chunk) {
  const auto who = static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank));
  return mix(mix(mix(who << 32 | seed) ^ seq) ^ chunk);
}

std::optional<Bytes> with_encoded_values(const Bytes& payload, std::span<const std::byte> values,
                                         Codec codec, std::uint64_t key) {
  // After 16-bit indices the values need not be aligned; there they are few.
  std::vector<float> aligned(values.size() / sizeof(float));
  std::memcpy(aligned.data(), values.data(), values.size());
  const std::size_t size = wire::values_bytes(codec, sizeof(float), aligned.size());
  bool fits = false;
  Bytes encoded = with_values(payload, values, size, [&](std::byte* out) {
    fits = encode_values(codec, aligned.data(), aligned.size(), key, out);
  });
  if (!fits) return {};
  return encoded;
}

}  // namespace sparsewire::proto
