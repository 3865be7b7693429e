// Bundles: their bytes, where they are cut, and a decoder that stands any input.
#include "decoding.hpp"
#include "wire/segment.hpp"

namespace bundle_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Format;
using wire::Piece;

Piece piece(std::uint64_t chunk, const Buffer& payload, Format format = Format::dense,
            Codec codec = Codec::raw) {
  return {chunk, format, codec, Bytes::copy_of(payload)};
}

bool is_equal(const Piece& a, const Piece& b) {
  return a.chunk == b.chunk && a.format == b.format && a.codec == b.codec &&
         std::ranges::equal(a.payload.view(), b.payload.view());
}

bool are_equal(const std::vector<Piece>& a, const std::vector<Piece>& b) {
  return std::ranges::equal(a, b, is_equal);
}

Buffer bundle_of(const std::vector<Piece>& pieces) {
  std::size_t first = 0;
  const Bytes bundle = wire::encode_bundle(pieces, first);
  REQUIRE(first == pieces.size());
  return buffer_of(bundle.view());
}

bool is_refused(const Buffer& bundle, std::vector<Piece> before = {}) {
  const Status error = wire::decode_bundle(Bytes::copy_of(bundle), before);
  return error && error->code == ErrorCode::protocol && !error->message.empty();
}

std::vector<Piece> random_pieces(std::size_t count, std::size_t longest, Random& random) {
  std::vector<Piece> pieces;
  std::uint64_t chunk = below(3, random);
  for (std::size_t i = 0; i < count; ++i, chunk += 1 + below(5, random)) {
    const auto format = static_cast<Format>(1 + below(wire::kFormatCount - 1, random));
    const auto codec = static_cast<Codec>(below(kCodecCount, random));
    pieces.push_back(piece(chunk, random_bytes(1 + below(longest, random), random), format, codec));
  }
  return pieces;
}

TEST_CASE("a bundle has the bytes it should") {
  const Buffer bundle = bundle_of(
      {piece(0x0102030405060708, bytes_of({0xaa}), Format::blocks),
       piece(wire::kNoChunk - 1, bytes_of({0xbb, 0xcc, 0xdd}), Format::coordinates, Codec::int2)});
  CHECK((bundle == bytes_of({8,    7, 6, 5, 4,    3,    2,    1,    2,    0,    0,    0,
                             1,    0, 0, 0, 0xaa, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                             0xff, 4, 5, 0, 0,    3,    0,    0,    0,    0xbb, 0xcc, 0xdd})));
}

TEST_CASE("bundles come back as they were sent, also in several frames") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t longest = pick<std::size_t>({10, 1000, 300'000, wire::kMaxPayload}, random);
    const std::vector<Piece> pieces = random_pieces(below(20, random), longest, random);
    std::vector<Piece> decoded;
    std::size_t first = 0;
    while (first < pieces.size()) {
      const std::size_t before = first;
      const Bytes bundle = wire::encode_bundle(pieces, first);
      REQUIRE(first > before);
      REQUIRE((bundle.size() <= wire::kBundleBytes || first == before + 1));
      REQUIRE(bundle.size() <= wire::kMaxBundleBytes);
      REQUIRE_FALSE(wire::decode_bundle(bundle, decoded));
    }
    REQUIRE(are_equal(decoded, pieces));
  }
}

TEST_CASE("bundles are filled up to their size") {
  const std::vector<Piece> pieces{piece(0, Buffer(wire::kBundleBytes - 16 - 20)),
                                  piece(1, Buffer(4)), piece(2, Buffer(1))};
  std::size_t first = 0;
  CHECK(wire::encode_bundle(pieces, first).size() == wire::kBundleBytes);
  CHECK(first == 2);
  CHECK(wire::encode_bundle(pieces, first).size() == 17);
  CHECK(first == 3);
  CHECK(wire::encode_bundle(pieces, first).empty());
}

TEST_CASE("no bytes are a bundle of nothing") {
  std::vector<Piece> pieces;
  CHECK_FALSE(wire::decode_bundle({}, pieces));
  CHECK(pieces.empty());
}

TEST_CASE("each malformed field of a bundle is refused") {
  const Buffer valid = bundle_of({piece(3, Buffer(5)), piece(4, Buffer(2))});
  CHECK_FALSE(is_refused(valid));
  for (const Change change : {Change{8, 0},
                              {8, wire::kFormatCount},
                              {8, 255},
                              {9, 6},
                              {9, 255},
                              {10, 1},
                              {11, 1},
                              {12, 0},
                              {15, 128}}) {
    CAPTURE(change.at);
    CHECK(is_refused(changed(valid, {change})));
  }
  for (const int chunk : {0, 2, 3}) CHECK(is_refused(changed(valid, {{21, chunk}})));
  for (std::size_t size = 1; size < valid.size(); ++size) {
    if (size != 21) CHECK(is_refused(Buffer(valid.begin(), valid.begin() + size)));
  }
  Buffer longer = valid;
  longer.push_back({});
  CHECK(is_refused(longer));
}

TEST_CASE("chunks ascend from bundle to bundle, too") {
  const Buffer valid = bundle_of({piece(3, Buffer(5))});
  CHECK_FALSE(is_refused(valid, {piece(2, Buffer(1))}));
  CHECK(is_refused(valid, {piece(3, Buffer(1))}));
  CHECK(is_refused(valid, {piece(9, Buffer(1))}));
}

void check_input(const Buffer& input) {
  std::vector<Piece> pieces;
  const Status error = wire::decode_bundle(Bytes::copy_of(input), pieces);
  if (error) {
    REQUIRE(error->code == ErrorCode::protocol);
  } else {
    REQUIRE((bundle_of(pieces) == input));
  }
}

TEST_CASE("any bytes are a bundle or refused") {
  for (int seed = 0; seed < kInputs; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const Buffer valid = bundle_of(random_pieces(1 + below(4, random), 30, random));
    check_input(one_in(8, random) ? random_bytes(below(60, random), random)
                                  : mutated(valid, random));
  }
  Random random(1);
  const Buffer valid = bundle_of(random_pieces(3, 30, random));
  for (std::size_t bit = 0; bit < 8 * valid.size(); ++bit) {
    Buffer input = valid;
    input[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    check_input(input);
  }
}

}  // namespace bundle_test
