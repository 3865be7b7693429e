// Frame headers, faults and topologies: their bytes, their bounds, and decoders that stand any
// input.
#include <string>

#include "decoding.hpp"

namespace wire_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Format;
using wire::FrameHeader;
using wire::FrameKind;

Result<FrameHeader> decode_header(const Buffer& bytes) {
  return wire::decode_header(std::span<const std::byte, wire::kHeaderBytes>(bytes));
}

// --- Frame headers ---

struct PayloadRule {
  FrameKind kind;
  Format format;
  std::uint32_t min;
  std::uint32_t max;
};

constexpr PayloadRule kRules[] = {
    {FrameKind::hello, Format::empty, 36, 36},
    {FrameKind::open, Format::empty, 48, 48},
    {FrameKind::segment, Format::dense, 1, 65536 * 8 + 512},
    {FrameKind::segment, Format::blocks, 1, 65536 * 8 + 512},
    {FrameKind::segment, Format::bitmap, 1, 65536 * 8 + 512},
    {FrameKind::segment, Format::coordinates, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::empty, 0, 0},
    {FrameKind::result, Format::dense, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::blocks, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::bitmap, 1, 65536 * 8 + 512},
    {FrameKind::result, Format::coordinates, 1, 65536 * 8 + 512},
    {FrameKind::fail, Format::empty, 8, 8 + 512},
    {FrameKind::cancel, Format::empty, 0, 0},
    {FrameKind::abort, Format::empty, 8, 8 + 512},
    {FrameKind::goodbye, Format::empty, 0, 0},
    {FrameKind::refuse, Format::empty, 8, 8 + 512},
    {FrameKind::decline, Format::empty, 8, 8 + 512},
    {FrameKind::join, Format::empty, 80, 80},
    {FrameKind::tally, Format::empty, 24, 24 + 8 * 65536},
    {FrameKind::missing, Format::empty, 0, 20},
    {FrameKind::part, Format::empty, 0, 1u << 30},
    {FrameKind::heartbeat, Format::empty, 0, 0},
    {FrameKind::silence, Format::empty, 0, 0},
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
                           .codec = Codec::int4,
                           .owner = 0x0708,
                           .payload = 0x01020304 & 0x3ffff,
                           .seq = 0x1112131415161718,
                           .chunk = 0x232425262728,
                           .next = wire::kNoChunk,
                           .group = 0x31323334};
  CHECK((encoded(header) ==
         bytes_of({3,    0x42, 0x08, 0x07, 0x04, 0x03, 0x02, 0x00, 0x18, 0x17, 0x16,
                   0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
                   0x34, 0x33, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x32, 0x31})));
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
    for (int codec = 0; codec < 16; ++codec) {
      const bool is_known = codec < (carries_values ? kCodecCount : 1);
      CHECK(refuses([&](FrameHeader& header) { header.codec = static_cast<Codec>(codec); }) ==
            !is_known);
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
  for (const auto& [at, value] :
       {std::pair{0, int{kErrorCodeCount}}, {0, 255}, {1, 1}, {2, 1}, {3, 1}, {7, 0x80}}) {
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
                             {&wire::Topology::window_bytes, 1u << 14, 1u << 30},
                             {&wire::Topology::peer_timeout_ms, 100, 86'400'000}}) {
    for (const std::uint32_t value : {range.min, range.max}) {
      CHECK(fits([&](wire::Hello& hello) { hello.topology.*range.field = value; }));
    }
    for (const std::uint32_t value : {0u, range.min - 1, range.max + 1, UINT32_MAX}) {
      CHECK_FALSE(fits([&](wire::Hello& hello) { hello.topology.*range.field = value; }));
    }
  }
  CHECK(fits([](wire::Hello& hello) { hello.topology.datagram_bytes = 65'507; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.topology.datagram_bytes = 65'508; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.topology.block = 24; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.lane = 2; }));
  CHECK_FALSE(fits([](wire::Hello& hello) { hello.owner = 3; }));
  for (const std::size_t size : {0u, 35u, 37u}) CHECK(is_refused(wire::decode_hello(Buffer(size))));
}

TEST_CASE("any bytes are a hello or refused") {
  check_any_input({encoded(kHello)}, 40,
                  [](const Buffer& input) { return wire::decode_hello(input); });
}

}  // namespace wire_test
