// Segments whose values a codec has written: sizes, reading them back, and a decoder that stands
// any input.
#include "codecs.hpp"
#include "decoding.hpp"
#include "proto/stream/contribution.hpp"
#include "segments.hpp"

namespace segment_codec_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Segment;
using wire::Format;

constexpr Format kFormats[] = {Format::dense, Format::blocks, Format::bitmap, Format::coordinates};

// A raw segment of random float32 values.
Segment random_segment(Format format, const BlockLayout& layout, Random& random) {
  Buffer payload;
  if (format == Format::dense) payload = Buffer(layout.bytes());
  if (format == Format::blocks) payload = blocks_payload(random_bitmap(layout, random), layout);
  if (wire::is_by_element(format)) {
    payload = elements_payload(format, element_bitmap(layout, random), layout);
  }
  const auto view = wire::decode_segment(format, Codec::raw, payload, layout);
  const Floats values = random_floats(view->count, random);
  std::memcpy(payload.data() + (payload.size() - view->values.size()), values.data(),
              view->values.size());
  return {format, Codec::raw, Bytes::copy_of(payload)};
}

BlockLayout float_layout(Random& random) {
  BlockLayout layout = random_layout(random);
  layout.element_size = sizeof(float);
  return layout;
}

Floats floats_of(const wire::SegmentView& view) {
  Floats values(view.count);
  std::memcpy(values.data(), view.values.data(), view.values.size());
  return values;
}

TEST_CASE("a segment in a codec names the same and holds what the codec makes of the values") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const BlockLayout layout = float_layout(random);
    const Format format = pick(kFormats, random);
    const Codec codec = pick(kCodecs, random);
    const Segment raw = random_segment(format, layout, random);
    const auto before = wire::decode_segment(format, Codec::raw, raw.payload.view(), layout);
    const Segment segment = proto::encode_segment(raw, codec, layout, seed);
    REQUIRE(segment.codec == codec);
    const auto view = wire::decode_segment(format, codec, segment.payload.view(), layout);
    REQUIRE(view);
    REQUIRE(view->count == before->count);
    REQUIRE((wire::elements_of(*view, layout) == wire::elements_of(*before, layout)));
    REQUIRE(view->values.size() == bytes_of(codec, view->count));

    const auto contribution = proto::read_segment(3, segment, layout);
    REQUIRE(contribution);
    REQUIRE(contribution->rank == 3);
    REQUIRE(contribution->values.codec == Codec::raw);
    REQUIRE((floats_of(contribution->values) == round_trip(codec, floats_of(*before), seed)));
  }
}

TEST_CASE("coordinates are counted by their size, at every number of them") {
  const BlockLayout layout{5000, sizeof(float), 256};
  for (const Codec codec : kCodecs) {
    for (std::size_t count = 1; count <= layout.count; count += count < 1020 ? 97 : 1) {
      if (count > 1030 && count < 2040) count = 2040;
      if (count > 2055) count = layout.count;
      Buffer payload(2 * count + bytes_of(codec, count));
      for (std::size_t i = 0; i < count; ++i)
        store(payload.data(), i, static_cast<std::uint16_t>(i));
      const auto view = wire::decode_segment(Format::coordinates, codec, payload, layout);
      REQUIRE(view);
      REQUIRE(view->count == count);
    }
  }
}

TEST_CASE("values that a codec cannot carry stay raw") {
  const BlockLayout layout{4, sizeof(float), 256};
  for (const float value : {kInf, -kInf, kNan}) {
    const Floats values{1, 2, value, 4};
    const Segment raw{Format::dense, Codec::raw, Bytes::copy_of(std::as_bytes(std::span(values)))};
    for (const Codec codec : kQuantised) {
      const Segment segment = proto::encode_segment(raw, codec, layout, 1);
      CHECK(segment.codec == Codec::raw);
      CHECK(segment.payload.data() == raw.payload.data());
    }
  }
}

TEST_CASE("keys of rounding differ wherever what is rounded differs") {
  std::vector<std::uint64_t> keys;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t seq = 0; seq < 4; ++seq) {
      for (Rank rank = kNoRank; rank < 4; ++rank) {
        for (std::uint64_t chunk = 0; chunk < 16; ++chunk) {
          keys.push_back(proto::rounding_key(seed, seq, rank, chunk << 8));
        }
      }
    }
  }
  std::ranges::sort(keys);
  CHECK(std::ranges::adjacent_find(keys) == keys.end());
}

TEST_CASE("a codec is for elements of four bytes alone") {
  const BlockLayout layout{8, 8, 256};
  const Buffer payload(bytes_of(Codec::int8, 8));
  CHECK(is_refused(
      proto::read_segment(0, {Format::dense, Codec::int8, Bytes::copy_of(payload)}, layout)));
}

void check_any_segment(Format format, Codec codec, const Buffer& input, const BlockLayout& layout) {
  const auto view = wire::decode_segment(format, codec, input, layout);
  const auto contribution = proto::read_segment(0, {format, codec, Bytes::copy_of(input)}, layout);
  REQUIRE(static_cast<bool>(view) == static_cast<bool>(contribution));
  if (!view) {
    REQUIRE(is_refused(view));
    return;
  }
  REQUIRE(view->values.size() == bytes_of(codec, view->count));
  REQUIRE(view->values.data() + view->values.size() == input.data() + input.size());
  const wire::ElementBitmap elements = wire::elements_of(*view, layout);
  REQUIRE(count_set(elements.data(), 64 * elements.size()) == view->count);
  REQUIRE(count_set(elements.data(), layout.count) == view->count);
  if (!is_stochastic(codec)) return;
  for (const float value : floats_of(contribution->values)) REQUIRE(std::isfinite(value));
}

TEST_CASE("any bytes are a segment in a codec or refused") {
  for (int seed = 0; seed < kInputs / 2; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    BlockLayout layout = float_layout(random);
    layout.count = std::min<std::size_t>(layout.count, 2000);
    const Format format = pick(kFormats, random);
    const Codec codec = pick(kCodecs, random);
    const Segment valid =
        proto::encode_segment(random_segment(format, layout, random), codec, layout, 1);
    const Buffer input = mutated(buffer_of(valid.payload.view()), random);
    check_any_segment(one_in(10, random) ? pick(kFormats, random) : format,
                      one_in(10, random) ? pick(kCodecs, random) : codec, input, layout);
  }
}

TEST_CASE("any bit of a segment in a codec may flip") {
  Random random(1);
  const BlockLayout layout{100, sizeof(float), 16};
  for (const Format format : kFormats) {
    for (const Codec codec : kCodecs) {
      const Segment valid =
          proto::encode_segment(random_segment(format, layout, random), codec, layout, 1);
      for (std::size_t bit = 0; bit < 8 * valid.payload.size(); ++bit) {
        CAPTURE(bit);
        Buffer input = buffer_of(valid.payload.view());
        input[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
        check_any_segment(format, codec, input, layout);
      }
    }
  }
}

}  // namespace segment_codec_test
