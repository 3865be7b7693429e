// What is refused of the caller's sparse vectors, and how they are searched.
#include <doctest/doctest.h>

#include <limits>

#include "proto/sparse/sparse_tensor.hpp"
#include "random.hpp"

namespace sparse_input_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Descriptor;

template <typename Index>
proto::SparseTensor tensor_of(const std::vector<Index>& indices, const std::vector<float>& values,
                              const Descriptor& descriptor) {
  return {indices.data(),
          sizeof(Index) == 8,
          indices.size(),
          reinterpret_cast<const std::byte*>(values.data()),
          0,
          descriptor};
}

template <typename Index>
Status check_indices(const std::vector<Index>& indices, std::uint64_t length,
                     std::uint32_t row = 1) {
  const std::vector<float> values(indices.size() * row, 1.0f);
  return proto::check(
      tensor_of(indices, values, {.count = length * row, .is_sparse = true, .row = row}));
}

void check_refused(const Status& error, const std::string& text) {
  REQUIRE(error);
  CAPTURE(error->message);
  CHECK(error->code == ErrorCode::input);
  CHECK(error->rank == kNoRank);
  CHECK(error->message.find(text) != std::string::npos);
}

TEST_CASE_TEMPLATE("indices ascend, each only once, and stay in range", Index, std::int32_t,
                   std::int64_t) {
  using Indices = std::vector<Index>;
  CHECK_FALSE(check_indices(Indices{}, 0));
  CHECK_FALSE(check_indices(Indices{0}, 1));
  CHECK_FALSE(check_indices(Indices{0, 1, 2, 9}, 10));
  CHECK_FALSE(check_indices(Indices{0, 9}, 10, 64));
  check_refused(check_indices(Indices{0, 5, 4, 9}, 10), "5 is followed by 4 at position 2");
  check_refused(check_indices(Indices{0, 5, 5, 9}, 10), "5 is followed by 5 at position 2");
  check_refused(check_indices(Indices{3, -1}, 10), "3 is followed by -1 at position 1");
  check_refused(check_indices(Indices{-1, 3}, 10), "index -1 is out of range for length 10");
  check_refused(check_indices(Indices{0, 10}, 10), "index 10 is out of range for length 10");
  check_refused(check_indices(Indices{0, 10}, 10, 64), "index 10 is out of range for length 10");
  check_refused(check_indices(Indices{0}, 0), "index 0 is out of range for length 0");
  const Index largest = std::numeric_limits<Index>::max();
  const Index smallest = std::numeric_limits<Index>::min();
  check_refused(check_indices(Indices{0, largest}, 10), "out of range");
  check_refused(check_indices(Indices{smallest, 0}, 10), "out of range");
  check_refused(check_indices(Indices{largest, smallest}, 10), "is followed by");
}

TEST_CASE("disorder is found wherever it is") {
  std::vector<std::int64_t> indices(1000);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(3 * i);
  CHECK_FALSE(check_indices(indices, 3000));
  for (std::size_t at = 1; at < indices.size(); ++at) {
    std::vector<std::int64_t> bad = indices;
    bad[at] = bad[at - 1];
    check_refused(check_indices(bad, 3000), "at position " + std::to_string(at));
  }
}

TEST_CASE("what is not finite has no place in quantised numbers") {
  const std::vector<std::int64_t> indices{1, 5};
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (int codec = 0; codec < kCodecCount; ++codec) {
    CAPTURE(codec);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
      for (std::size_t at = 0; at < 32; ++at) {
        std::vector<float> values(32, 1.0f);
        Descriptor descriptor{.count = 160, .is_sparse = true, .row = 16};
        descriptor.segment_codec = static_cast<Codec>(codec);
        CHECK_FALSE(proto::check(tensor_of(indices, values, descriptor)));
        values[at] = bad;
        const Status first = proto::check(tensor_of(indices, values, descriptor));
        std::swap(descriptor.segment_codec, descriptor.result_codec);
        const Status second = proto::check(tensor_of(indices, values, descriptor));
        for (const Status& error : {first, second}) {
          if (is_stochastic(static_cast<Codec>(codec))) {
            check_refused(error, "values[" + std::to_string(at) + "] is ");
            check_refused(error, "has no place in quantised numbers");
          } else {
            CHECK_FALSE(error);
          }
        }
      }
    }
  }
}

TEST_CASE("a search finds the first place whose index is not below the bound") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<std::int32_t> indices;
    const auto base = static_cast<std::int32_t>(below(100, random));
    for (std::int32_t at = base; indices.size() < 50;
         at += 1 + static_cast<std::int32_t>(below(4, random))) {
      indices.push_back(at);
    }
    proto::SparseTensor tensor = tensor_of(indices, {}, {.count = 1000, .is_sparse = true});
    tensor.base = static_cast<std::uint64_t>(base);
    for (const std::uint64_t from : {0u, 7u, 50u}) {
      for (std::uint64_t bound = 0; bound < 250; ++bound) {
        std::uint64_t expected = from;
        while (expected < 50 && indices[expected] - base < static_cast<std::int32_t>(bound)) {
          ++expected;
        }
        REQUIRE(proto::lower_bound(tensor, from, bound) == expected);
      }
    }
    CHECK(proto::lower_bound(tensor, 0, std::uint64_t{1} << 48) == 50);
  }
}

}  // namespace sparse_input_test
