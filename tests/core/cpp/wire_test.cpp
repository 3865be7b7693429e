// Every message of the wire: its bytes, its bounds, and decoders that stand any input.
#include <doctest/doctest.h>

#include <string>

#include "base/bitmap.hpp"
#include "random.hpp"
#include "wire/descriptor.hpp"
#include "wire/fault.hpp"
#include "wire/frame.hpp"
#include "wire/segment.hpp"
#include "wire/topology.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Format;
using wire::FrameHeader;
using wire::FrameKind;

constexpr int kInputs = 100'000;

Buffer buffer_of(std::span<const std::byte> bytes) { return Buffer(bytes.begin(), bytes.end()); }

Buffer bytes_of(std::initializer_list<int> values) {
  Buffer bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Buffer encoded(const FrameHeader& header) {
  Buffer bytes(wire::kHeaderBytes);
  wire::encode(header, std::span<std::byte, wire::kHeaderBytes>(bytes));
  return bytes;
}

Buffer encoded(const wire::Descriptor& descriptor) {
  Buffer bytes(wire::kDescriptorBytes);
  wire::encode(descriptor, std::span<std::byte, wire::kDescriptorBytes>(bytes));
  return bytes;
}

Buffer encoded(const Error& error) { return buffer_of(wire::encode_fault(error).view()); }
Buffer encoded(const wire::Hello& hello) { return buffer_of(wire::encode_hello(hello).view()); }

Result<FrameHeader> decode_header(const Buffer& bytes) {
  return wire::decode_header(std::span<const std::byte, wire::kHeaderBytes>(bytes));
}

template <typename T>
bool is_refused(const Result<T>& result) {
  return !result && result.error().code == ErrorCode::protocol && !result.error().message.empty();
}

// Whatever a decoder takes has exactly one encoding, so it must give back the very same bytes.
template <typename T>
void check_outcome(const Result<T>& result, const Buffer& input) {
  if (!result) {
    REQUIRE(is_refused(result));
  } else if constexpr (std::is_same_v<T, wire::Fault>) {
    REQUIRE((encoded(result->error) == input));
  } else {
    REQUIRE((encoded(*result) == input));
  }
}

// Feeds a decoder with damaged valid input and with noise of every length up to `longest`.
template <typename Decode>
void check_any_input(const std::vector<Buffer>& valid, std::size_t longest, Decode decode) {
  for (int seed = 0; seed < kInputs; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const Buffer input = one_in(8, random) ? random_bytes(below(longest + 1, random), random)
                                           : mutated(valid[below(valid.size(), random)], random);
    check_outcome(decode(input), input);
  }
}

// --- Frame headers ---

struct PayloadRule {
  FrameKind kind;
  Format format;
  std::uint32_t min;
  std::uint32_t max;
};

constexpr PayloadRule kRules[] = {
    {FrameKind::hello, Format::empty, 32, 32},
    {FrameKind::open, Format::empty, 16, 16},
    {FrameKind::segment, Format::dense, 1, 65536 * 8 + 512},
    {FrameKind::segment, Format::blocks, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::empty, 0, 0},
    {FrameKind::result, Format::dense, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::blocks, 1, 65536 * 8 + 512},
    {FrameKind::fail, Format::empty, 8, 8 + 512},
    {FrameKind::cancel, Format::empty, 0, 0},
    {FrameKind::abort, Format::empty, 8, 8 + 512},
    {FrameKind::goodbye, Format::empty, 0, 0},
};

FrameHeader header_of(const PayloadRule& rule) {
  return {.kind = rule.kind,
          .format = rule.format,
          .payload = rule.min,
          .seq = 7,
          .chunk = 3,
          .next = 5};
}

TEST_CASE("a frame header has the bytes it should") {
  const FrameHeader header{.kind = FrameKind::segment,
                           .format = Format::blocks,
                           .payload = 0x01020304 & 0x3ffff,
                           .seq = 0x1112131415161718,
                           .chunk = 0x2122232425262728,
                           .next = wire::kNoChunk};
  CHECK((encoded(header) ==
         bytes_of({3,    2,    0,    0,    0x04, 0x03, 0x02, 0x00, 0x18, 0x17, 0x16,
                   0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
                   0x22, 0x21, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})));
}

TEST_CASE("every kind of frame comes back as it was sent") {
  for (const PayloadRule& rule : kRules) {
    for (const std::uint32_t payload : {rule.min, rule.max}) {
      for (const std::uint64_t seq : {std::uint64_t{0}, wire::kMaxSequence}) {
        FrameHeader header = header_of(rule);
        header.payload = payload;
        header.seq = seq;
        header.next = wire::kNoChunk;
        const auto decoded = decode_header(encoded(header));
        REQUIRE(decoded);
        CHECK((*decoded == header));
      }
    }
  }
}

TEST_CASE("a frame header outside its bounds is refused") {
  for (const PayloadRule& rule : kRules) {
    CAPTURE(static_cast<int>(rule.kind));
    const auto refuses = [&](auto change) {
      FrameHeader header = header_of(rule);
      change(header);
      return is_refused(decode_header(encoded(header)));
    };
    CHECK(refuses([&](FrameHeader& header) { header.payload = rule.max + 1; }));
    CHECK(refuses([&](FrameHeader& header) { header.payload = rule.min - 1; }));
    CHECK(refuses([](FrameHeader& header) { header.payload = UINT32_MAX; }));
    CHECK(refuses([](FrameHeader& header) { header.seq = wire::kMaxSequence + 1; }));
    const bool carries_values = rule.format != Format::empty;
    for (const std::uint64_t next : {std::uint64_t{0}, std::uint64_t{3}}) {
      CHECK(refuses([&](FrameHeader& header) { header.next = next; }) == carries_values);
    }
    for (const std::size_t reserved : {2u, 3u}) {
      Buffer bytes = encoded(header_of(rule));
      bytes[reserved] = std::byte{1};
      CHECK(is_refused(decode_header(bytes)));
    }
  }
}

TEST_CASE("each kind of frame takes the formats it should, and no unknown ones exist") {
  for (int kind = 0; kind < 256; ++kind) {
    for (int format = 0; format < 256; ++format) {
      bool known = false;
      std::uint32_t payload = 0;
      for (const PayloadRule& rule : kRules) {
        const bool is_this =
            static_cast<int>(rule.kind) == kind && static_cast<int>(rule.format) == format;
        known |= is_this;
        if (is_this) payload = rule.min;
      }
      const Buffer bytes = encoded({.kind = static_cast<FrameKind>(kind),
                                    .format = static_cast<Format>(format),
                                    .payload = payload,
                                    .chunk = 1,
                                    .next = 2});
      REQUIRE(static_cast<bool>(decode_header(bytes)) == known);
    }
  }
}

TEST_CASE("any 32 bytes are a frame header or refused") {
  for (int seed = 0; seed < 5 * kInputs; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    Buffer input = encoded(header_of(pick(kRules, random)));
    mutate(input, random);
    check_outcome(decode_header(input), input);
  }
}

// --- Descriptors ---

TEST_CASE("a descriptor has the bytes it should and comes back") {
  CHECK((encoded(wire::Descriptor{DType::bfloat16, ReduceOp::max, 0x010203}) ==
         bytes_of({3, 3, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0})));
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, wire::kMaxCount}) {
        const wire::Descriptor descriptor{dtype, op, count};
        const auto decoded = wire::decode_descriptor(encoded(descriptor));
        REQUIRE(decoded);
        CHECK((*decoded == descriptor));
      }
    }
  }
  CHECK(wire::describe({DType::float32, ReduceOp::sum, 1000}) == "sum of 1000 float32");
}

TEST_CASE("a descriptor outside its bounds is refused") {
  const Buffer valid = encoded(wire::Descriptor{DType::int64, ReduceOp::product, 9});
  for (std::size_t at = 2; at < 8; ++at) {
    Buffer reserved = valid;
    reserved[at] = std::byte{1};
    CHECK(is_refused(wire::decode_descriptor(reserved)));
  }
  for (const auto& [at, value] : {std::pair{0, 6}, {0, 255}, {1, 5}, {1, 255}, {14, 2}}) {
    Buffer bad = valid;
    bad[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    CHECK(is_refused(wire::decode_descriptor(bad)));
  }
  const wire::Descriptor too_many{DType::float32, ReduceOp::sum, wire::kMaxCount + 1};
  CHECK(is_refused(wire::decode_descriptor(encoded(too_many))));
  for (std::size_t size = 0; size < 40; ++size) {
    if (size != 16) CHECK(is_refused(wire::decode_descriptor(Buffer(size))));
  }
}

TEST_CASE("any bytes are a descriptor or refused") {
  check_any_input({encoded(wire::Descriptor{DType::float16, ReduceOp::avg, 1u << 20})}, 24,
                  [](const Buffer& input) { return wire::decode_descriptor(input); });
}

// --- Faults ---

TEST_CASE("a fault comes back as it was sent") {
  for (int code = 0; code < kErrorCodeCount; ++code) {
    for (const Rank rank : {kNoRank, 0, 65535, INT32_MAX}) {
      for (const std::size_t length : {0u, 1u, 512u}) {
        const Error error{static_cast<ErrorCode>(code), rank, std::string(length, 'x')};
        const auto decoded = wire::decode_fault(encoded(error));
        REQUIRE(decoded);
        CHECK(decoded->error.code == error.code);
        CHECK(decoded->error.rank == rank);
        CHECK(decoded->error.message == error.message);
      }
    }
  }
}

TEST_CASE("the text of a fault is cut between two characters") {
  for (const std::size_t before : {509u, 510u, 511u, 512u}) {
    const Error error{ErrorCode::aborted, 1, std::string(before, 'x') + "\xe2\x82\xac tail"};
    const auto decoded = wire::decode_fault(encoded(error));
    REQUIRE(decoded);
    const std::size_t kept = before == 509 ? 512 : before;
    CHECK(decoded->error.message == error.message.substr(0, kept));
  }
}

TEST_CASE("a fault outside its bounds is refused") {
  const Buffer valid = encoded(Error{ErrorCode::timeout, 2, "late"});
  for (const auto& [at, value] : {std::pair{0, 6}, {0, 255}, {1, 1}, {2, 1}, {3, 1}, {7, 0x80}}) {
    Buffer bad = valid;
    bad[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    CHECK(is_refused(wire::decode_fault(bad)));
  }
  CHECK(is_refused(wire::decode_fault(encoded(Error{ErrorCode::timeout, -2, ""}))));
  for (const std::size_t size : {0u, 1u, 7u, 521u, 4096u}) {
    CHECK(is_refused(wire::decode_fault(Buffer(size))));
  }
}

TEST_CASE("any bytes are a fault or refused") {
  check_any_input({encoded(Error{ErrorCode::peer_lost, 3, "rank 3: gone"}),
                   encoded(Error{ErrorCode::closed, kNoRank, std::string(512, 'y')})},
                  530, [](const Buffer& input) { return wire::decode_fault(input); });
}

// --- Topologies ---

constexpr wire::Hello kHello{{.world_size = 4, .lanes = 2, .owners = 3, .block = 128}, 1, 2};

TEST_CASE("a hello comes back as it was sent") {
  const auto decoded = wire::decode_hello(encoded(kHello));
  REQUIRE(decoded);
  CHECK((decoded->topology == kHello.topology));
  CHECK(decoded->lane == 1);
  CHECK(decoded->owner == 2);
}

TEST_CASE("a topology outside its bounds is refused") {
  const auto fits = [](auto change) {
    wire::Hello hello = kHello;
    change(hello);
    return !is_refused(wire::decode_hello(encoded(hello)));
  };
  struct Range {
    std::uint32_t wire::Topology::* field;
    std::uint32_t min;
    std::uint32_t max;
  };
  for (const Range& range : {Range{&wire::Topology::world_size, 1, 65536},
                             {&wire::Topology::lanes, 2, 64},
                             {&wire::Topology::owners, 3, 65536},
                             {&wire::Topology::block, 16, 4096},
                             {&wire::Topology::window_bytes, 1u << 14, 1u << 30}}) {
    for (const std::uint32_t value : {range.min, range.max}) {
      CHECK(fits([&](wire::Hello& hello) { hello.topology.*range.field = value; }));
    }
    for (const std::uint32_t value : {0u, range.min - 1, range.max + 1, UINT32_MAX}) {
      CHECK_FALSE(fits([&](wire::Hello& hello) { hello.topology.*range.field = value; }));
    }
  }
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.topology.block = 24; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.lane = 2; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.owner = 3; }));
  Buffer reserved = encoded(kHello);
  reserved.back() = std::byte{1};
  CHECK(is_refused(wire::decode_hello(reserved)));
  for (const std::size_t size : {0u, 31u, 33u}) CHECK(is_refused(wire::decode_hello(Buffer(size))));
}

TEST_CASE("any bytes are a hello or refused") {
  check_any_input({encoded(kHello)}, 40,
                  [](const Buffer& input) { return wire::decode_hello(input); });
}

// --- Segments ---

BlockLayout random_layout(Random& random) {
  const std::size_t block = std::size_t{16} << below(9, random);
  const std::size_t longest = std::min<std::size_t>(wire::kMaxChunkElements, 70 * block);
  return {1 + below(longest, random), pick({2u, 4u, 8u}, random), block};
}

wire::BlockBitmap random_bitmap(const BlockLayout& layout, Random& random) {
  wire::BlockBitmap bitmap{};
  bitmap[0] = 1;
  for (std::size_t i = 0; i < layout.blocks(); ++i) {
    if (one_in(3, random)) bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return bitmap;
}

std::size_t packed_bytes_of(const wire::BlockBitmap& bitmap, const BlockLayout& layout) {
  std::size_t elements = 0;
  for (std::size_t i = 0; i < layout.count; ++i) {
    elements += test_bit(bitmap.data(), i / layout.block);
  }
  return elements * layout.element_size;
}

Buffer blocks_payload(const wire::BlockBitmap& bitmap, const BlockLayout& layout) {
  const std::size_t head = wire::bitmap_bytes(layout);
  Buffer payload(head + packed_bytes_of(bitmap, layout), std::byte{7});
  wire::encode_bitmap(bitmap, layout, payload.data());
  return payload;
}

bool segment_is_refused(Format format, const Buffer& payload, const BlockLayout& layout) {
  return is_refused(wire::decode_segment(format, payload, layout));
}

TEST_CASE("a segment of blocks comes back as it was sent") {
  for (int seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const BlockLayout layout = random_layout(random);
    const wire::BlockBitmap bitmap = random_bitmap(layout, random);
    REQUIRE(wire::packed_bytes(bitmap, layout) == packed_bytes_of(bitmap, layout));
    const Buffer payload = blocks_payload(bitmap, layout);
    const auto view = wire::decode_segment(Format::blocks, payload, layout);
    REQUIRE(view);
    REQUIRE((view->bitmap == bitmap));
    REQUIRE(view->values.data() == payload.data() + wire::bitmap_bytes(layout));
    REQUIRE(view->values.size() == packed_bytes_of(bitmap, layout));
  }
}

TEST_CASE("a dense segment holds every element") {
  for (const std::size_t count : {0u, 1u, 255u, 256u, 257u, 16383u, 16384u, 65536u}) {
    const BlockLayout layout{count, 4, 256};
    const auto view = wire::decode_segment(Format::dense, Buffer(layout.bytes()), layout);
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

wire::ElementBitmap random_elements(const BlockLayout& layout, Random& random) {
  wire::ElementBitmap elements{};
  elements[0] = 1;
  for (std::size_t i = 0; i < layout.count; ++i) {
    if (one_in(7, random)) elements[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return elements;
}

Buffer elements_payload(Format format, const wire::ElementBitmap& elements,
                        const BlockLayout& layout) {
  const std::size_t count = count_set(elements.data(), layout.count);
  const std::size_t head = wire::positions_bytes(format, layout, count);
  Buffer payload(head + count * layout.element_size, std::byte{7});
  wire::encode_positions(format, elements, layout, payload.data());
  return payload;
}

TEST_CASE("a segment of elements comes back as it was sent") {
  for (int seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const BlockLayout layout = random_layout(random);
    const wire::ElementBitmap elements = random_elements(layout, random);
    for (const Format format : {Format::bitmap, Format::coordinates}) {
      const Buffer payload = elements_payload(format, elements, layout);
      const auto view = wire::decode_segment(format, payload, layout);
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
  const auto blocks = wire::decode_segment(Format::blocks, payload, layout);
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
        mutated(elements_payload(format, random_elements(layout, random), layout), random);
    const auto view = wire::decode_segment(format, input, layout);
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
    const auto view = wire::decode_segment(format, input, layout);
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

}  // namespace
