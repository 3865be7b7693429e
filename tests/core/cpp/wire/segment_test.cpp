// Segments of raw values: what they hold, their bounds, and a decoder that stands any input.
#include "decoding.hpp"
#include "segments.hpp"

namespace segment_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Format;

bool segment_is_refused(Format format, const Buffer& payload, const BlockLayout& layout) {
  return is_refused(wire::decode_segment(format, Codec::raw, payload, layout));
}

TEST_CASE("a segment of blocks comes back as it was sent") {
  for (int seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const BlockLayout layout = random_layout(random);
    const wire::BlockBitmap bitmap = random_bitmap(layout, random);
    REQUIRE(wire::packed_bytes(bitmap, layout) == packed_bytes_of(bitmap, layout));
    const Buffer payload = blocks_payload(bitmap, layout);
    const auto view = wire::decode_segment(Format::blocks, Codec::raw, payload, layout);
    REQUIRE(view);
    REQUIRE((view->bitmap == bitmap));
    REQUIRE(view->values.data() == payload.data() + wire::bitmap_bytes(layout));
    REQUIRE(view->values.size() == packed_bytes_of(bitmap, layout));
  }
}

TEST_CASE("a dense segment holds every element") {
  for (const std::size_t count : {0u, 1u, 255u, 256u, 257u, 16383u, 16384u, 65536u}) {
    const BlockLayout layout{count, 4, 256};
    const auto view =
        wire::decode_segment(Format::dense, Codec::raw, Buffer(layout.bytes()), layout);
    REQUIRE(view);
    CHECK(all_set(view->bitmap.data(), layout.blocks()));
    CHECK(count_set(view->bitmap.data(), 64 * view->bitmap.size()) == layout.blocks());
    CHECK(view->values.size() == layout.bytes());
    CHECK(segment_is_refused(Format::dense, Buffer(layout.bytes() + 1), layout));
    if (count != 0) CHECK(segment_is_refused(Format::dense, Buffer(layout.bytes() - 1), layout));
    CHECK(segment_is_refused(Format::empty, Buffer(layout.bytes()), layout));
  }
}

TEST_CASE("a segment of blocks outside its bounds is refused") {
  const BlockLayout layout{1000, 4, 256};  // 4 blocks, the last of 232 elements
  const Buffer valid = blocks_payload({0b1010}, layout);
  CHECK_FALSE(segment_is_refused(Format::blocks, valid, layout));
  for (std::size_t size = 0; size < valid.size(); ++size) {
    CHECK(segment_is_refused(Format::blocks, Buffer(valid.begin(), valid.begin() + size), layout));
  }
  Buffer longer = valid;
  longer.push_back({});
  CHECK(segment_is_refused(Format::blocks, longer, layout));
  for (std::size_t bit = 4; bit < 64; ++bit) {
    Buffer beyond = valid;
    beyond[bit / 8] |= static_cast<std::byte>(1 << (bit % 8));
    CHECK(segment_is_refused(Format::blocks, beyond, layout));
  }
  Buffer nothing = valid;
  nothing[0] = {};
  CHECK(segment_is_refused(Format::blocks, nothing, layout));
}

TEST_CASE("a segment of elements comes back as it was sent") {
  for (int seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const BlockLayout layout = random_layout(random);
    const wire::ElementBitmap elements = element_bitmap(layout, random);
    for (const Format format : {Format::bitmap, Format::coordinates}) {
      const Buffer payload = elements_payload(format, elements, layout);
      const auto view = wire::decode_segment(format, Codec::raw, payload, layout);
      REQUIRE(view);
      REQUIRE((wire::elements_of(*view, layout) == elements));
      REQUIRE(view->values.size() ==
              count_set(elements.data(), layout.count) * layout.element_size);
      REQUIRE(view->values.data() + view->values.size() == payload.data() + payload.size());
    }
  }
}

TEST_CASE("blocks and dense segments name all elements of their blocks") {
  const BlockLayout layout{1000, 4, 256};
  const Buffer payload = blocks_payload({0b1010}, layout);
  const auto blocks = wire::decode_segment(Format::blocks, Codec::raw, payload, layout);
  REQUIRE(blocks);
  const wire::ElementBitmap elements = wire::elements_of(*blocks, layout);
  for (std::size_t i = 0; i < 1024; ++i) {
    CHECK(test_bit(elements.data(), i) == (i < layout.count && (i / 256) % 2 == 1));
  }
}

TEST_CASE("a segment of elements outside its bounds is refused") {
  const BlockLayout layout{100, 4, 16};
  for (const Format format : {Format::bitmap, Format::coordinates}) {
    const Buffer valid = elements_payload(format, {0b1011}, layout);
    CHECK_FALSE(segment_is_refused(format, valid, layout));
    for (std::size_t size = 0; size < valid.size(); ++size) {
      const bool whole = format == Format::coordinates && size % 6 == 0 && size != 0;
      if (whole) continue;  // As long as fewer coordinates, which the indices then show.
      CHECK(segment_is_refused(format, Buffer(valid.begin(), valid.begin() + size), layout));
    }
    CHECK(segment_is_refused(format, valid, BlockLayout{0, 4, 16}));
  }
  const auto indices = [&](std::uint8_t a, std::uint8_t b) {
    Buffer payload(12);
    payload[0] = std::byte{a};
    payload[2] = std::byte{b};
    return payload;
  };
  CHECK_FALSE(segment_is_refused(Format::coordinates, indices(0, 99), layout));
  CHECK(segment_is_refused(Format::coordinates, indices(0, 100), layout));
  CHECK(segment_is_refused(Format::coordinates, indices(5, 5), layout));
  CHECK(segment_is_refused(Format::coordinates, indices(6, 5), layout));
  Buffer beyond = elements_payload(Format::bitmap, {0b11}, layout);
  beyond[100 / 8] |= std::byte{1 << (100 % 8)};
  CHECK(segment_is_refused(Format::bitmap, beyond, layout));
}

TEST_CASE("any bytes are a segment of elements or refused") {
  for (int seed = 0; seed < kInputs / 2; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    BlockLayout layout = random_layout(random);
    layout.count = std::min<std::size_t>(layout.count, 2000);
    const Format format = pick({Format::bitmap, Format::coordinates}, random);
    const Buffer input =
        mutated(elements_payload(format, element_bitmap(layout, random), layout), random);
    const auto view = wire::decode_segment(format, Codec::raw, input, layout);
    if (!view) {
      REQUIRE(is_refused(view));
      continue;
    }
    const wire::ElementBitmap elements = wire::elements_of(*view, layout);
    REQUIRE(view->values.size() == count_set(elements.data(), layout.count) * layout.element_size);
    REQUIRE(count_set(elements.data(), 64 * elements.size()) ==
            count_set(elements.data(), layout.count));
  }
}

TEST_CASE("any bytes are a segment or refused") {
  for (int seed = 0; seed < kInputs / 2; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    BlockLayout layout = random_layout(random);
    layout.count = std::min<std::size_t>(layout.count, 2000);
    const Format format = pick({Format::dense, Format::blocks, Format::blocks}, random);
    const Buffer input = mutated(blocks_payload(random_bitmap(layout, random), layout), random);
    const auto view = wire::decode_segment(format, Codec::raw, input, layout);
    if (!view) {
      REQUIRE(is_refused(view));
      continue;
    }
    REQUIRE(view->values.size() == packed_bytes_of(view->bitmap, layout));
    REQUIRE(view->values.data() + view->values.size() == input.data() + input.size());
    REQUIRE(count_set(view->bitmap.data(), 64 * view->bitmap.size()) ==
            count_set(view->bitmap.data(), layout.blocks()));
  }
}

}  // namespace segment_test
