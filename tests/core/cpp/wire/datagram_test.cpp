// Datagrams and their tags: what is encoded decodes, every malformed field is refused, and a tag
// finds each flipped bit. Tags are compared with a second, plain implementation.
#include <doctest/doctest.h>

#include <array>

#include "decoding.hpp"
#include "random.hpp"
#include "wire/greeting.hpp"
#include "wire/layout.hpp"
#include "wire/tag.hpp"

namespace datagram_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::ColumnRecord;
using wire::DatagramHeader;
using wire::DatagramKind;

struct Example {
  DatagramHeader header;
  std::array<ColumnRecord, wire::kMaxColumns> columns;
  Buffer bytes;
};

Example example_of(const DatagramHeader& header, Random& random) {
  Example example{header, {}, Buffer(wire::datagram_head(header.columns) + header.values_bytes())};
  for (auto& byte : example.bytes) byte = static_cast<std::byte>(random());
  for (ColumnRecord& column : example.columns) {
    column = {.next = static_cast<std::uint32_t>(random()),
              .exponent = static_cast<std::uint8_t>(random())};
  }
  const std::size_t size =
      wire::encode(header, {example.columns.data(), header.columns}, example.bytes);
  REQUIRE(size == example.bytes.size());
  return example;
}

DatagramHeader random_header(Random& random) {
  const auto columns = static_cast<std::uint8_t>(1 + below(wire::kMaxColumns, random));
  return {.kind = pick({DatagramKind::contribution, DatagramKind::result, DatagramKind::recall},
                       random),
          .worker = static_cast<std::uint16_t>(random()),
          .slot = static_cast<std::uint16_t>(random()),
          .columns = columns,
          .present = static_cast<std::uint8_t>(below(1u << columns, random)),
          .job = random(),
          .epoch = static_cast<std::uint32_t>(random()),
          .dtype = pick(kDTypes, random),
          .op = pick(kOps, random),
          .block = static_cast<std::uint16_t>(16u << below(9, random)),
          .round = random()};
}

bool is_refused(const Buffer& bytes) {
  const auto datagram = wire::decode_datagram(bytes);
  if (!datagram) REQUIRE(datagram.error().code == ErrorCode::protocol);
  return !datagram;
}

TEST_CASE("what is encoded decodes to the same") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Example example = example_of(random_header(random), random);
    const auto datagram = wire::decode_datagram(example.bytes);
    REQUIRE(datagram);
    CHECK((datagram->header == example.header));
    for (std::size_t c = 0; c < example.header.columns; ++c) {
      CHECK((datagram->columns[c] == example.columns[c]));
      CHECK(datagram->has(c) == ((example.header.present >> c & 1) != 0));
    }
    CHECK(datagram->values.size() == example.header.values_bytes());
    CHECK(datagram->values.data() ==
          example.bytes.data() + wire::datagram_head(example.header.columns));
    CHECK(*wire::job_of(example.bytes) == example.header.job);
  }
}

TEST_CASE("the layout is the documented one") {
  Random random(1);
  const Example example = example_of({.kind = DatagramKind::result,
                                      .worker = 0x0102,
                                      .slot = 0x0304,
                                      .columns = 1,
                                      .present = 1,
                                      .job = 0x1112131415161718,
                                      .epoch = 0x21222324,
                                      .dtype = DType::int32,
                                      .op = ReduceOp::max,
                                      .block = 0x0040,
                                      .round = 0x3132333435363738},
                                     random);
  const unsigned char head[] = {2,    2,    2,    1,    4,    3,    1,    1,    0x18, 0x17,
                                0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21,
                                4,    3,    0x40, 0,    0x38, 0x37, 0x36, 0x35, 0x34, 0x33,
                                0x32, 0x31, 0,    0,    0,    0,    0,    0,    0,    0};
  static_assert(sizeof head == wire::kDatagramHeaderBytes);
  CHECK(std::memcmp(example.bytes.data(), head, sizeof head) == 0);
  CHECK(example.bytes.size() == 40 + 8 + 64 * 4);
}

TEST_CASE("each malformed field is refused") {
  Random random(2);
  const Buffer valid = example_of({.columns = 2, .present = 3, .block = 16}, random).bytes;
  CHECK_FALSE(is_refused(valid));
  for (const Change change :
       {Change{0, 0}, {0, 1},    {0, 255}, {1, 0},   {1, 4},  {1, 5},   {1, 6},
        {1, 255},     {6, 0},    {6, 1},   {6, 3},   {6, 9},  {6, 255}, {7, 1},
        {7, 2},       {7, 0},    {7, 7},   {7, 131}, {20, 6}, {20, 1},  {20, 255},
        {21, 5},      {21, 255}, {22, 15}, {22, 17}, {22, 0}, {23, 1},  {23, 255}}) {
    CAPTURE(change.at);
    CHECK(is_refused(changed(valid, {change})));
  }
  for (std::size_t size = 0; size < valid.size(); ++size) {
    CHECK(is_refused(Buffer(valid.begin(), valid.begin() + static_cast<std::ptrdiff_t>(size))));
  }
  Buffer longer = valid;
  longer.push_back({});
  CHECK(is_refused(longer));
}

TEST_CASE("blocks are of 16 to 4096 elements") {
  Random random(3);
  for (const auto& [block, is_valid] :
       {std::pair{15, false}, {16, true}, {4096, true}, {4097, false}}) {
    const DatagramHeader header{.present = 1, .block = static_cast<std::uint16_t>(block)};
    CHECK(is_refused(example_of(header, random).bytes) != is_valid);
  }
}

TEST_CASE("greetings have any length, and no columns") {
  Random random(4);
  for (const DatagramKind kind :
       {DatagramKind::hello, DatagramKind::welcome, DatagramKind::noted}) {
    Buffer bytes = example_of({.kind = kind, .columns = 0, .block = 16}, random).bytes;
    CHECK_FALSE(is_refused(bytes));
    bytes.resize(1472);
    CHECK_FALSE(is_refused(bytes));
    CHECK(wire::decode_datagram(bytes)->values.size() == 1472 - wire::kDatagramHeaderBytes);
    CHECK(is_refused(changed(bytes, {{6, 1}})));
  }
}

TEST_CASE("greetings say who takes part, and are checked") {
  const auto read = [](const wire::Greeting& greeting, std::uint16_t worker, std::size_t size,
                       std::uint16_t slot = 0) {
    Buffer bytes(size);
    const DatagramHeader header{
        .kind = DatagramKind::hello, .worker = worker, .slot = slot, .columns = 0};
    wire::encode_greeting(header, greeting, bytes);
    return wire::decode_greeting(*wire::decode_datagram(bytes));
  };
  const wire::Greeting valid{
      .workers = 3, .world_size = 8, .rack = 1, .racks = 2, .datagram_bytes = 1472, .flows = 8};
  for (const std::size_t size : {64u, 576u, 8972u}) {
    REQUIRE(read(valid, 2, size));
    CHECK(*read(valid, 2, size) == valid);
  }
  CHECK_FALSE(read(valid, 3, 576));
  CHECK(read(valid, 2, 576, 56));
  for (const std::uint16_t slot : {1, 57, 64}) CHECK_FALSE(read(valid, 2, 576, slot));
  wire::Greeting wrong[] = {valid, valid, valid, valid, valid, valid, valid, valid, valid};
  wrong[0].workers = 0;
  wrong[1].workers = 9;
  wrong[2].rack = 2;
  wrong[3].racks = 9;
  wrong[4].world_size = 65534;
  wrong[5].datagram_bytes = 575;
  wrong[6].datagram_bytes = 8973;
  wrong[7].flows = 0;
  wrong[8].flows = 9;
  for (const wire::Greeting& greeting : wrong) CHECK_FALSE(read(greeting, 0, 576));
  Buffer empty(wire::kDatagramHeaderBytes);
  wire::encode({.kind = DatagramKind::hello, .columns = 0}, {}, empty);
  CHECK_FALSE(wire::decode_greeting(*wire::decode_datagram(empty)));
}

TEST_CASE("the job is read of what is long enough, and of this version") {
  Random random(5);
  const Buffer valid = example_of({.block = 16}, random).bytes;
  CHECK_FALSE(wire::job_of(std::span(valid).first(39)));
  CHECK_FALSE(wire::job_of(changed(valid, {{0, 1}})));
  CHECK(wire::job_of(std::span(valid).first(40)));
}

TEST_CASE("any bytes are a datagram or refused") {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Buffer input = one_in(8, random)
                             ? random_bytes(below(100, random), random)
                             : mutated(example_of(random_header(random), random).bytes, random);
    const auto datagram = wire::decode_datagram(input);
    if (!datagram) continue;
    const DatagramHeader& header = datagram->header;
    if (wire::is_greeting(header.kind)) continue;
    REQUIRE(input.size() == wire::datagram_head(header.columns) + header.values_bytes());
    REQUIRE(datagram->values.data() + datagram->values.size() == input.data() + input.size());
  }
}

// --- Tags ---

// SipHash-c-d of bytes, as its authors describe it.
std::uint64_t plain_siphash(int c, int d, std::uint64_t k0, std::uint64_t k1,
                            const std::vector<unsigned char>& in) {
  std::uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                        k1 ^ 0x7465646279746573};
  const auto rotated = [](std::uint64_t x, int by) { return x << by | x >> (64 - by); };
  const auto half_round = [&](int a, int b, int s, int t) {
    v[a] += v[b];
    v[b] = rotated(v[b], s) ^ v[a];
    if (t != 0) v[a] = rotated(v[a], t);
  };
  const auto rounds = [&](int times) {
    for (int i = 0; i < times; ++i) {
      half_round(0, 1, 13, 32);
      half_round(2, 3, 16, 0);
      half_round(0, 3, 21, 0);
      half_round(2, 1, 17, 32);
    }
  };
  for (std::size_t at = 0; at <= in.size() / 8 * 8; at += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8 && at + i < in.size(); ++i) {
      word |= std::uint64_t{in[at + i]} << (8 * i);
    }
    if (at + 8 > in.size()) word |= std::uint64_t{in.size()} << 56;
    v[3] ^= word;
    rounds(c);
    v[0] ^= word;
  }
  v[2] ^= 0xff;
  rounds(d);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

std::vector<unsigned char> bytes_of(std::span<const std::uint64_t> words) {
  std::vector<unsigned char> bytes;
  for (const std::uint64_t word : words) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<unsigned char>(word >> (8 * i)));
  }
  return bytes;
}

// The vectors of SipHash's reference code, key 00 01 .. 0f, message 00 01 ..; with them, the plain
// implementation is known to be right.
TEST_CASE("SipHash-1-3") {
  constexpr std::uint64_t k0 = 0x0706050403020100, k1 = 0x0f0e0d0c0b0a0908;
  std::vector<unsigned char> message;
  CHECK(plain_siphash(2, 4, k0, k1, message) == 0x726fdb47dd0e0e31);
  for (unsigned char i = 0; i < 15; ++i) message.push_back(i);
  CHECK(plain_siphash(2, 4, k0, k1, message) == 0xa129ca6149be45e5);

  Random random(6);
  for (std::size_t words = 0; words < 20; ++words) {
    std::vector<std::uint64_t> data(words);
    for (auto& word : data) word = random();
    const std::uint64_t key0 = random(), key1 = random();
    CHECK(wire::siphash(key0, key1, data, 8 * words) ==
          plain_siphash(1, 3, key0, key1, bytes_of(data)));
  }
}

constexpr std::size_t kLongest = 1472;

// As wire/tag.hpp describes it: SipHash of the header's four words, of NH of the whole words behind
// the header, and of the rest with the length.
std::uint64_t plain_tag(const Buffer& key, const Buffer& datagram) {
  std::uint64_t keys[4];
  std::memcpy(keys, key.data(), sizeof keys);
  std::vector<std::uint64_t> words(4);
  std::memcpy(words.data(), datagram.data(), 32);
  std::uint64_t sum = 0;
  std::size_t at = wire::kDatagramHeaderBytes;
  for (std::uint64_t i = 0; at + 8 <= datagram.size(); at += 8, ++i) {
    const std::uint64_t nh =
        plain_siphash(1, 3, keys[2], keys[3], bytes_of(std::span<const std::uint64_t>(&i, 1)));
    const auto low = static_cast<std::uint32_t>(load<std::uint32_t>(datagram.data() + at, 0) + nh);
    const auto high =
        static_cast<std::uint32_t>(load<std::uint32_t>(datagram.data() + at, 1) + (nh >> 32));
    sum += std::uint64_t{low} * high;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, datagram.data() + at, datagram.size() - at);
  words.push_back(sum);
  words.push_back(rest ^ (datagram.size() - wire::kDatagramHeaderBytes));
  return plain_siphash(1, 3, keys[0], keys[1], bytes_of(words));
}

TEST_CASE("tags are those of a plain implementation") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Buffer key = random_bytes(wire::kTagKeyBytes, random);
    const wire::TagKey tag_key(key, kLongest);
    Buffer datagram = random_bytes(
        wire::kDatagramHeaderBytes + below(kLongest - wire::kDatagramHeaderBytes + 1, random),
        random);
    CHECK(tag_key.tag(datagram) == plain_tag(key, datagram));
    tag_key.seal(datagram);
    CHECK(load<std::uint64_t>(datagram.data() + wire::kTagOffset, 0) == tag_key.tag(datagram));
    CHECK(tag_key.is_sealed(datagram));
  }
}

TEST_CASE("a tag finds each flipped bit, another length and another key") {
  Random random(7);
  const wire::TagKey key(random_bytes(wire::kTagKeyBytes, random), kLongest);
  const wire::TagKey other(random_bytes(wire::kTagKeyBytes, random), kLongest);
  for (const std::uint16_t block : {16, 64}) {
    Buffer datagram = example_of({.columns = 2, .present = 3, .block = block}, random).bytes;
    key.seal(datagram);
    REQUIRE(key.is_sealed(datagram));
    CHECK_FALSE(other.is_sealed(datagram));
    for (std::size_t bit = 0; bit < 8 * datagram.size(); ++bit) {
      datagram[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      REQUIRE_FALSE(key.is_sealed(datagram));
      datagram[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
    for (std::size_t size = 0; size < datagram.size(); ++size) {
      REQUIRE_FALSE(key.is_sealed(std::span(datagram).first(size)));
    }
    datagram.push_back({});
    CHECK_FALSE(key.is_sealed(datagram));
    datagram.resize(kLongest + 100);
    CHECK_FALSE(key.is_sealed(datagram));
  }
}

}  // namespace datagram_test
