// Codecs: the bytes they write, and what a receiver refuses.
#include <string>

#include "codecs.hpp"

namespace codec_test {

using namespace sparsewire;
using namespace sparsewire::test;

// --- Layout ---

TEST_CASE("sizes are those of scales and whole bytes of codes") {
  CHECK(wire::values_bytes(Codec::raw, 8, 3) == 24);
  CHECK(wire::values_bytes(Codec::raw, 2, 3) == 6);
  CHECK(bytes_of(Codec::bfloat16, 3) == 6);
  CHECK(bytes_of(Codec::float16, 3) == 6);
  CHECK(bytes_of(Codec::int8, 1024) == 4 + 1024);
  CHECK(bytes_of(Codec::int4, 1024) == 4 + 512);
  CHECK(bytes_of(Codec::int2, 1024) == 4 + 256);
  CHECK(bytes_of(Codec::int8, 1025) == 8 + 1025);
  CHECK(bytes_of(Codec::int4, 1025) == 8 + 513);
  CHECK(bytes_of(Codec::int2, 2047) == 8 + 512);
  for (const Codec codec : kCodecs) CHECK(bytes_of(codec, 0) == 0);
}

TEST_CASE("codecs know their names, and whether they round at random") {
  CHECK(std::string(name_of(Codec::raw)) == "raw");
  CHECK(std::string(name_of(Codec::bfloat16)) == "bfloat16");
  CHECK(std::string(name_of(Codec::int2)) == "int2");
  for (const Codec codec : kCodecs) {
    const bool quantises =
        std::find(std::begin(kQuantised), std::end(kQuantised), codec) != std::end(kQuantised);
    CHECK(is_stochastic(codec) == quantises);
  }
}

// Whole multiples of scale / levels leave nothing to chance, so their bytes are known.
void check_bytes(Codec codec, const Floats& values, std::initializer_list<int> codes) {
  Buffer expected(4);
  store(expected.data(), 0, std::bit_cast<std::uint32_t>(levels_of(codec)));
  for (const int code : codes) expected.push_back(static_cast<std::byte>(code));
  for (const std::uint64_t key : {0u, 1u, 77u}) {
    for (const Kernels* table : available_kernels()) {
      const Encoded encoded = encode(*table, codec, values, key);
      CHECK((Buffer(encoded.storage.begin() + 1, encoded.storage.end()) == expected));
      CHECK((decode(*table, codec, encoded, values.size()) == values));
    }
  }
}

TEST_CASE("codes are two's complement, from the low bits of a byte up") {
  check_bytes(Codec::int8, {127, -127, 0, 1, -1, 5}, {127, 0x81, 0, 1, 0xff, 5});
  check_bytes(Codec::int4, {7, -7, 1, -1, -3}, {0x97, 0xf1, 0x0d});
  check_bytes(Codec::int2, {1, -1, 0, 0, -1, 1, 1}, {0x0d, 0x17});
}

TEST_CASE("all scales come first, then the codes span by span") {
  Floats values(2 * kSpan + 3);
  values[0] = 7;
  values[kSpan + 1] = -14;
  values[2 * kSpan + 2] = 21;
  Encoded encoded = encode(Codec::int4, values, 5);
  REQUIRE(encoded.view().size() == 12 + 512 + 512 + 2);
  const auto* const scales = encoded.data();
  CHECK(load<float>(scales, 0) == 7);
  CHECK(load<float>(scales, 1) == 14);
  CHECK(load<float>(scales, 2) == 21);
  Buffer codes(512 + 512 + 2);
  codes[0] = std::byte{0x07};
  codes[512] = std::byte{0x90};
  codes[1025] = std::byte{0x07};
  CHECK((Buffer(encoded.storage.begin() + 13, encoded.storage.end()) == codes));
}

// --- What a receiver refuses ---

TEST_CASE("what encode writes passes the check, at no other length") {
  Random random(8);
  for (const Codec codec : kCodecs) {
    for (const std::size_t count : kCounts) {
      Encoded encoded = encode(codec, random_floats(count, random), random());
      CHECK_FALSE(is_refused(codec, encoded.view(), count));
      if (codec == Codec::raw) continue;
      const Buffer longer(encoded.view().size() + 1);
      CHECK(is_refused(codec, longer, count));
      if (count != 0)
        CHECK(is_refused(codec, encoded.view().first(encoded.view().size() - 1), count));
    }
  }
}

TEST_CASE("scales that are negative or not finite are refused, in any span") {
  for (const Codec codec : kQuantised) {
    for (const std::size_t span : {0u, 1u, 2u}) {
      constexpr std::size_t count = 2 * kSpan + 1;
      Encoded encoded = encode(codec, Floats(count, 0.25f), 1);
      for (const float scale : {kNan, -kNan, kInf, -kInf, -1.0f, -kTiny, -0.0f}) {
        store(encoded.data(), span, scale);
        CHECK(is_refused(codec, encoded.view(), count));
      }
      for (const float scale : {0.0f, kTiny, kHuge}) {
        store(encoded.data(), span, scale);
        CHECK_FALSE(is_refused(codec, encoded.view(), count));
      }
    }
  }
}

// Every byte of codes at every place in a payload of 19 such bytes: words, and what is left of
// them.
TEST_CASE("a code below the smallest level is refused, and no other") {
  constexpr std::size_t bytes = 19;
  for (const Codec codec : kQuantised) {
    const std::size_t bits = bits_per_value(codec, sizeof(float));
    const std::size_t count = bytes * 8 / bits;
    const unsigned lowest = 1u << (bits - 1);
    for (std::size_t at = 0; at < bytes; ++at) {
      for (unsigned byte = 0; byte < 256; ++byte) {
        bool illegal = false;
        for (unsigned shift = 0; shift < 8; shift += bits) {
          illegal |= ((byte >> shift) & ((1u << bits) - 1)) == lowest;
        }
        Buffer values(4 + bytes);
        values[4 + at] = static_cast<std::byte>(byte);
        REQUIRE(is_refused(codec, values, count) == illegal);
      }
    }
  }
}

void check_rest_of_byte(Codec codec, std::size_t count, int last_byte) {
  Buffer values(bytes_of(codec, count));
  CHECK_FALSE(is_refused(codec, values, count));
  values.back() = static_cast<std::byte>(last_byte);
  CHECK(is_refused(codec, values, count));
  CHECK_FALSE(is_refused(codec, values, count + 1));
}

TEST_CASE("bits behind the last value are refused") {
  check_rest_of_byte(Codec::int4, 1, 0x10);
  check_rest_of_byte(Codec::int4, 17, 0xf0);
  check_rest_of_byte(Codec::int2, 1, 0x04);
  check_rest_of_byte(Codec::int2, 2, 0x10);
  check_rest_of_byte(Codec::int2, 35, 0x40);
}

TEST_CASE("whatever passes the check decodes to finite values") {
  Random random(9);
  int taken = 0;
  for (int seed = 0; seed < 20'000; ++seed) {
    const Codec codec = pick(kQuantised, random);
    const std::size_t count = 1 + below(80, random);
    const Encoded valid = encode(codec, wild_floats(count, random), random());
    const Buffer input = mutated(Buffer(valid.storage.begin() + 1, valid.storage.end()), random);
    if (is_refused(codec, input, count)) continue;
    ++taken;
    Floats decoded(count);
    decode_values(codec, input.data(), count, decoded.data());
    for (const float value : decoded) REQUIRE(std::isfinite(value));
  }
  CHECK(taken > 1000);
}

// Other builds and other machines must draw the same, so that runs can be repeated anywhere. What
// is expected was worked out apart from this code, from the definitions of the two finalisers.
TEST_CASE("the generator stays what it is") {
  Floats values(kSpan + 32, 0.5f);
  values[0] = 1;
  values[kSpan] = 1;
  for (const Kernels* table : available_kernels()) {
    Encoded encoded = encode(*table, Codec::int2, values, 12345);
    CHECK(load<std::uint64_t>(encoded.data() + 8, 0) == 0x1041100505451055u);
    CHECK(load<std::uint64_t>(encoded.data() + 8 + 256, 0) == 0x44411501115105u);
  }
}

}  // namespace codec_test
