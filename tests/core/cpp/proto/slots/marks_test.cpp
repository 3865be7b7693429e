// Marks of what is not finite, against sums of floats: of any number of ranks, and of any of them.
#include "proto/slots/marks.hpp"

#include <doctest/doctest.h>

#include "slot_operations.hpp"
#include "wire/greeting.hpp"

namespace marks_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr DType kFixedTypes[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr double kKinds[] = {HUGE_VAL, -HUGE_VAL, std::nan("")};

std::vector<std::uint32_t> marks_of(const Buffer& values, DType dtype) {
  std::vector<std::uint32_t> marks(values.size() / element_size(dtype));
  proto::encode_marks(reinterpret_cast<std::byte*>(marks.data()), values.data(), marks.size(),
                      dtype);
  return marks;
}

void place(Buffer& values, const std::vector<std::uint32_t>& sums, DType dtype) {
  proto::place_marks(values.data(), reinterpret_cast<const std::byte*>(sums.data()), sums.size(),
                     dtype);
}

// Each place has something of its own: how likely the ranks have something there, and what.
TEST_CASE("marks add up to what floats add up to") {
  constexpr std::size_t kCount = 64;
  for (const DType dtype : kFixedTypes) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 17u, 1024u}) {
      CAPTURE(ranks);
      Random random(ranks);
      std::vector<Buffer> inputs;
      std::vector<std::uint32_t> sums(kCount);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        inputs.push_back(random_elements(kCount, dtype, random));
        make_finite(inputs.back(), kCount, dtype);
        for (std::size_t i = 8; i < kCount; ++i) {
          if (!one_in(i % 4 == 0 ? 1 : ranks, random)) continue;
          put_rounded(inputs.back(), i, dtype, kKinds[i % 8 < 4 ? i / 8 % 3 : below(3, random)]);
        }
        const auto marks = marks_of(inputs.back(), dtype);
        for (std::size_t i = 0; i < kCount; ++i) sums[i] += marks[i];
      }
      Buffer expected = inputs[0];
      for (std::size_t i = 0; i < kCount; ++i) {
        const double sum = plain_sum(inputs, i, dtype);
        if (!std::isfinite(sum)) put_rounded(expected, i, dtype, sum);
      }
      Buffer values = inputs[0];
      place(values, sums, dtype);
      CHECK(same(values, expected));
    }
  }
}

TEST_CASE("as many ranks as there may be do not overflow a mark") {
  for (const DType dtype : kFixedTypes) {
    for (const double value : kKinds) {
      Buffer values(element_size(dtype));
      put_rounded(values, 0, dtype, value);
      const Buffer expected = values;
      const std::uint32_t sum = wire::kMostRanks * marks_of(values, dtype)[0];
      values.assign(values.size(), std::byte{0});
      place(values, {sum}, dtype);
      CHECK(same(values, expected));
    }
  }
}

TEST_CASE("any NaN is NaN") {
  for (const DType dtype : kFixedTypes) {
    const auto infinity = std::uint64_t{special_patterns(dtype)[2]};
    CAPTURE(infinity);
    for (const std::uint64_t payload : {1, 2, 0x40}) {
      Buffer values(element_size(dtype));
      store_pattern(values.data(), 0, dtype, infinity | payload);
      place(values, marks_of(values, dtype), dtype);
      CHECK(std::isnan(widened(values, 0, dtype)));
    }
  }
}

TEST_CASE("what is between marks is replaced, and marks stay") {
  Random random(3);
  for (const DType dtype : kFixedTypes) {
    constexpr std::size_t kCount = 1000;
    const Buffer before = random_elements(kCount, dtype, random);
    const Buffer values = random_elements(kCount, dtype, random);
    Buffer after = before;
    proto::copy_between_marks(after.data(), values.data(), kCount, dtype);
    for (std::size_t i = 0; i < kCount; ++i) {
      const Buffer& expected = std::isfinite(widened(before, i, dtype)) ? values : before;
      REQUIRE(std::memcmp(after.data() + i * element_size(dtype),
                          expected.data() + i * element_size(dtype), element_size(dtype)) == 0);
    }
  }
}

}  // namespace marks_test
