// Descriptors, joins and tallies: their bytes, the rules between their fields, and decoders that
// stand any input.
#include "decoding.hpp"

namespace descriptor_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;
using wire::Collective;
using wire::Descriptor;
using wire::Join;
using wire::ResultForm;

constexpr Descriptor kLossy{.dtype = DType::float32,
                            .op = ReduceOp::avg,
                            .count = 0x0a0b0c0000,
                            .is_sparse = true,
                            .row = 64,
                            .form = ResultForm::dense,
                            .segment_codec = Codec::int8,
                            .result_codec = Codec::bfloat16,
                            .seed = 0x01020304,
                            .purpose = {.collective = Collective::broadcast,
                                        .form = ResultForm::sparse,
                                        .root = 0x21222324,
                                        .elements = 0x3132,
                                        .dtype = DType::float64,
                                        .site = 0x41424344}};

constexpr Join kJoin{.call = {.descriptor = kLossy,
                              .collective = Collective::reduce_scatter,
                              .algorithm = Algorithm::ring,
                              .root = 0x11121314,
                              .unit = 0x100},
                     .elements = 0x0102030405,
                     .crowded = 0x0203};

bool is_taken(const Descriptor& descriptor) {
  const auto decoded = wire::decode_descriptor(encoded(descriptor));
  if (!decoded) REQUIRE(is_refused(decoded));
  return static_cast<bool>(decoded);
}

bool is_taken(const Join& join) {
  const auto decoded = wire::decode_join(encoded(join));
  if (!decoded) REQUIRE(is_refused(decoded));
  return static_cast<bool>(decoded);
}

// With one change.
template <typename T, typename Change>
bool takes(T value, Change change) {
  change(value);
  return is_taken(value);
}

// --- Descriptors ---

TEST_CASE("a descriptor has the bytes it should") {
  CHECK((encoded(Descriptor{DType::bfloat16, ReduceOp::max, 0x010203}) ==
         bytes_of({3, 3, 0, 0, 1, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                   0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})));
  CHECK((encoded(kLossy) ==
         bytes_of({0,    1,    1, 2, 64, 0, 0, 0, 0,    0,    0x0c, 0x0b, 0x0a, 0,    0,    0,
                   3,    1,    0, 0, 4,  3, 2, 1, 3,    1,    1,    0,    0x24, 0x23, 0x22, 0x21,
                   0x32, 0x31, 0, 0, 0,  0, 0, 0, 0x44, 0x43, 0x42, 0x41, 0,    0,    0,    0})));
}

TEST_CASE("a descriptor comes back as it was sent") {
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, wire::kMaxCount}) {
        const Descriptor descriptor{dtype, op, count};
        const auto decoded = wire::decode_descriptor(encoded(descriptor));
        REQUIRE(decoded);
        CHECK((*decoded == descriptor));
      }
    }
  }
  const auto lossy = wire::decode_descriptor(encoded(kLossy));
  REQUIRE(lossy);
  CHECK((*lossy == kLossy));
}

TEST_CASE("a descriptor is worded for people") {
  CHECK(wire::describe(Descriptor{DType::float32, ReduceOp::sum, 1000}) == "sum of 1000 float32");
  CHECK(wire::describe(Descriptor{.count = 640, .is_sparse = true, .row = 64}) ==
        "sparse sum of 640 float32 in rows of 64");
  CHECK(wire::describe(Descriptor{
            .count = 1, .form = ResultForm::sparse, .result_codec = Codec::int4, .seed = 7}) ==
        "sum of 1 float32 with sparse results as raw/int4 with seed 7");
}

TEST_CASE("a descriptor of what runs for something else is worded as that") {
  const auto worded = [](wire::Purpose purpose) {
    return wire::describe(
        Descriptor{.dtype = DType::int32, .op = ReduceOp::max, .count = 8, .purpose = purpose});
  };
  CHECK(worded({.collective = Collective::barrier}) == "barrier");
  CHECK(worded({.collective = Collective::broadcast,
                .root = 2,
                .elements = 4,
                .dtype = DType::float64}) == "broadcast with root 2 of 4 float64");
  CHECK(worded({.collective = Collective::reduce, .root = 1, .elements = 4}) ==
        "reduce with root 1 by max of 4 float32");
  CHECK(worded({.form = ResultForm::dense}) == "max of 8 int32 into a dense array");
  CHECK(worded({.site = 7}) == "max of 8 int32 from site 7");
}

TEST_CASE("unknown values and reserved bits of a descriptor are refused") {
  const Buffer valid = encoded(Descriptor{DType::int64, ReduceOp::product, 9});
  for (const Change change :
       {Change{0, 6}, {0, 255}, {1, 5},    {1, 255}, {2, 2},    {2, 255}, {3, 3},  {3, 255},
        {14, 2},      {16, 6},  {16, 255}, {17, 6},  {17, 255}, {18, 1},  {19, 1}, {19, 128},
        {24, 6},      {25, 6},  {26, 3},   {27, 1},  {44, 1},   {47, 128}}) {
    CAPTURE(change.at);
    CHECK(is_refused(wire::decode_descriptor(changed(valid, {change}))));
  }
  for (std::size_t size = 0; size < 60; ++size) {
    if (size != wire::kDescriptorBytes) CHECK(is_refused(wire::decode_descriptor(Buffer(size))));
  }
}

TEST_CASE("the fields of a descriptor must fit each other") {
  const Descriptor plain{DType::float32, ReduceOp::sum, 64 * 100};
  const auto fits = [&](auto change) { return takes(plain, change); };
  CHECK(fits([](Descriptor& d) { d.count = wire::kMaxCount; }));
  CHECK_FALSE(fits([](Descriptor& d) { d.count = wire::kMaxCount + 1; }));
  for (const std::uint32_t row : {1u, 16u, 64u, 100u, 3200u}) {
    CAPTURE(row);
    const bool is_plain = row == 1;
    CHECK(fits([&](Descriptor& d) { d.row = row, d.is_sparse = true; }));
    CHECK(fits([&](Descriptor& d) { d.row = row; }) == is_plain);  // rows are of sparse vectors
    CHECK(fits([&](Descriptor& d) { d.row = row, d.is_sparse = true, ++d.count; }) == is_plain);
  }
  for (const std::uint32_t row : {0u, 2u, 15u, 4097u, UINT32_MAX}) {
    CHECK_FALSE(fits([&](Descriptor& d) { d.row = row, d.is_sparse = true, d.count = 0; }));
  }
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      const bool adds = skips_zeros(op);
      const bool may_be_lossy = dtype == DType::float32 && adds;
      CHECK(fits([&](Descriptor& d) { d = {dtype, op, 1, true}; }) == adds);
      CHECK(fits([&](Descriptor& d) { d = {dtype, op, 1}, d.segment_codec = Codec::float16; }) ==
            may_be_lossy);
      CHECK(fits([&](Descriptor& d) { d = {dtype, op, 1}, d.result_codec = Codec::int2; }) ==
            may_be_lossy);
    }
  }
}

TEST_CASE("any bytes are a descriptor or refused") {
  const std::vector<Buffer> valid{encoded(Descriptor{DType::float16, ReduceOp::avg, 1u << 20}),
                                  encoded(kLossy)};
  const auto decode = [](const Buffer& input) { return wire::decode_descriptor(input); };
  check_any_input(valid, 64, decode);
  check_any_bit_flip(valid, decode);
}

// --- Joins ---

TEST_CASE("a join has the bytes it should") {
  Buffer expected = encoded(kLossy);
  const Buffer tail = bytes_of({2, 5, 0, 0, 0x14, 0x13, 0x12, 0x11, 5, 4, 3, 2, 1, 0, 0, 0,
                                0, 1, 0, 0, 0,    0,    0,    0,    3, 2, 0, 0, 0, 0, 0, 0});
  expected.insert(expected.end(), tail.begin(), tail.end());
  CHECK(wire::kJoinBytes == 80);
  CHECK((encoded(kJoin) == expected));
}

TEST_CASE("a join comes back as it was sent") {
  // But for a barrier, which is a sum.
  for (int collective = 0; collective < wire::kCollectiveCount - 1; ++collective) {
    for (int algorithm = 0; algorithm < wire::kAlgorithmCount; ++algorithm) {
      Join join = kJoin;
      join.call.collective = static_cast<Collective>(collective);
      join.call.algorithm = static_cast<Algorithm>(algorithm);
      const auto decoded = wire::decode_join(encoded(join));
      REQUIRE(decoded);
      CHECK(decoded->call == join.call);
      CHECK(decoded->elements == join.elements);
      CHECK((encoded(*decoded) == encoded(join)));
    }
  }
}

TEST_CASE("a call is worded for people") {
  const Descriptor descriptor{.count = 10, .is_sparse = true};
  const std::string what = " (sparse sum of 10 float32)";
  CHECK(wire::describe(Call{descriptor}) == "all_reduce" + what);
  CHECK(wire::describe(Call{.descriptor = descriptor, .algorithm = Algorithm::ring}) ==
        "all_reduce by ring" + what);
  CHECK(
      wire::describe(Call{.descriptor = descriptor, .collective = Collective::reduce, .root = 2}) ==
      "reduce with root 2" + what);
  CHECK(wire::describe(Call{.descriptor = descriptor, .collective = Collective::all_gather}) ==
        "all_gather" + what);
}

TEST_CASE("each malformed field of a join is refused") {
  const Buffer valid = encoded(kJoin);
  CHECK(is_taken(kJoin));
  for (const Change change : {Change{0, 6},
                              {16, 255},
                              {48, 5},
                              {48, 255},
                              {49, 7},
                              {49, 255},
                              {50, 1},
                              {51, 1},
                              {68, 1},
                              {69, 1},
                              {70, 1},
                              {71, 255}}) {
    CAPTURE(change.at);
    CHECK(is_refused(wire::decode_join(changed(valid, {change}))));
  }
  const auto fits = [](auto change) { return takes(kJoin, change); };
  CHECK_FALSE(fits([](Join& join) { join.call.unit = 0; }));
  CHECK_FALSE(fits([](Join& join) { join.call.unit = 0xffff; }));  // does not divide the rows
  CHECK_FALSE(fits([](Join& join) { join.call.descriptor = {}; }));
  CHECK(fits([](Join& join) { join.elements = join.call.descriptor.count; }));
  CHECK_FALSE(fits([](Join& join) { join.elements = join.call.descriptor.count + 1; }));
  for (std::size_t size = 0; size < 100; ++size) {
    if (size != wire::kJoinBytes) CHECK(is_refused(wire::decode_join(Buffer(size))));
  }
}

TEST_CASE("any bytes are a join or refused") {
  const std::vector<Buffer> valid{
      encoded(kJoin), encoded(Join{.call = {{.count = 1000, .is_sparse = true}}, .elements = 9})};
  const auto decode = [](const Buffer& input) { return wire::decode_join(input); };
  check_any_input(valid, 60, decode);
  check_any_bit_flip(valid, decode);
}

// --- Tallies ---

Buffer encoded(const wire::Tally& tally) { return buffer_of(wire::encode_tally(tally).view()); }

bool same(const wire::Tally& a, const wire::Tally& b) {
  return a.elements == b.elements && a.most == b.most && a.crowded == b.crowded &&
         a.of_each == b.of_each;
}

constexpr Call kGather{.descriptor = {.count = 0x10000, .is_sparse = true},
                       .collective = Collective::all_gather};

TEST_CASE("a tally has the bytes it should, and comes back as it was sent") {
  const wire::Tally tally{0x0306, 0x0201, 0x0105, {0x0201, 0x0105}};
  CHECK((encoded(tally) == bytes_of({6, 3, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0,
                                     0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 0, 0})));
  const auto decoded = wire::decode_tally(encoded(tally), kGather, 2);
  REQUIRE(decoded);
  CHECK(same(*decoded, tally));
  CHECK(is_refused(wire::decode_tally(encoded(tally), kGather, 3)));
  Call sum = kGather;
  sum.collective = Collective::all_reduce;
  CHECK(is_refused(wire::decode_tally(encoded(tally), sum, 2)));
  CHECK(wire::decode_tally(encoded(wire::Tally{0x0306, 0x0201, 0x0105}), sum, 2));
}

TEST_CASE("the decoder of tallies stands any input") {
  const std::vector<Buffer> valid{
      encoded(wire::Tally{30, 20, 3, {20, 0, 10}}),
      encoded(wire::Tally{3 * 0x10000, 0x10000, 0, {0x10000, 0x10000, 0x10000}})};
  const auto decode = [](const Buffer& input) { return wire::decode_tally(input, kGather, 3); };
  for (const Buffer& input : valid) REQUIRE(decode(input));
  for (int seed = 0; seed < kInputs; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const Buffer input = one_in(8, random) ? random_bytes(below(60, random), random)
                                           : mutated(pick({valid[0], valid[1]}, random), random);
    const auto tally = decode(input);
    if (tally) {
      REQUIRE((encoded(*tally) == input));
    } else {
      REQUIRE(is_refused(tally));
    }
  }
}

// --- Missing ranks ---

TEST_CASE("ranks that are missing come back in their order, and any others are refused") {
  const std::vector<Rank> ranks{3, 4, 0x1234};
  const Buffer bytes = buffer_of(wire::encode_missing(ranks).view());
  CHECK((bytes == bytes_of({3, 0, 0, 0, 4, 0, 0, 0, 0x34, 0x12, 0, 0})));
  const auto decoded = wire::decode_missing(bytes, 0x1235);
  REQUIRE(decoded);
  CHECK((*decoded == ranks));
  CHECK(wire::decode_missing({}, 2)->empty());
  CHECK(is_refused(wire::decode_missing(bytes, 0x1234)));
  CHECK(is_refused(wire::decode_missing(changed(bytes, {{0, 4}}), 0x1235)));  // twice
  CHECK(is_refused(wire::decode_missing(changed(bytes, {{7, 0x80}}), 0x1235)));
  for (const std::size_t size : {1, 3, 5, 24}) {
    CHECK(is_refused(wire::decode_missing(Buffer(size), 100)));
  }
}

}  // namespace descriptor_test
