// Fixed point against plain arithmetic: no sum overflows whatever the values, the error keeps its
// bound, what is not finite is found, and half types round once.
#include "proto/slots/fixed_point.hpp"

#include <doctest/doctest.h>

#include "slot_operations.hpp"

namespace fixed_point_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::FixedPoint;
using proto::shared_exponent;

constexpr DType kFixedTypes[] = {DType::float32, DType::float16, DType::bfloat16};

// Where special_patterns() has them.
constexpr std::size_t kNegativeZero = 1;
constexpr std::size_t kLargest = 14;

// Widths of the mantissa, and of the smallest subnormal number.
int digits_of(DType dtype) {
  return dtype == DType::float32 ? 24 : dtype == DType::float16 ? 11 : 8;
}
int smallest_of(DType dtype) {
  return dtype == DType::float32 ? -149 : dtype == DType::float16 ? -24 : -133;
}

double largest_of(DType dtype) {
  Buffer value(element_size(dtype));
  store_pattern(value.data(), 0, dtype, special_patterns(dtype)[kLargest]);
  return widened(value, 0, dtype);
}

// Values of one kind: of any magnitude, near one another, subnormal, the largest, zeros, or powers
// of two.
Buffer finite_values(std::size_t count, DType dtype, Random& random) {
  Buffer values(count * element_size(dtype));
  const std::uint64_t kind = below(6, random);
  const auto largest = special_patterns(dtype)[kLargest];
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::size_t i = 0; i < count; ++i) {
    switch (kind) {
      case 0:
        store_pattern(values.data(), i, dtype, random());
        break;
      case 1:
        put_rounded(values, i, dtype, uniform(random));
        break;
      case 2:
        store_pattern(values.data(), i, dtype, below(1u << (digits_of(dtype) - 1), random));
        break;
      case 3:
        store_pattern(
            values.data(), i, dtype,
            one_in(2, random) ? largest : largest | special_patterns(dtype)[kNegativeZero]);
        break;
      case 4:
        break;
      default:
        put_rounded(values, i, dtype,
                    std::ldexp(1, static_cast<int>(below(14, random))) * pick({1, -1}, random));
    }
  }
  make_finite(values, count, dtype);
  return values;
}

std::uint8_t exponent_of(const Buffer& values, std::size_t count, DType dtype) {
  return shared_exponent(values.data(), count, dtype);
}

TEST_CASE("the exponent is that of the largest magnitude") {
  Random random(1);
  for (const DType dtype : kFixedTypes) {
    for (int repeat = 0; repeat < 500; ++repeat) {
      const std::size_t count = 1 + below(1100, random);
      const Buffer values = finite_values(count, dtype, random);
      CHECK(exponent_of(values, count, dtype) ==
            reference_exponent({values}, 0, count, dtype) + 127);
    }
  }
}

TEST_CASE("a value that is not finite is found wherever it is") {
  Random random(2);
  for (const DType dtype : kFixedTypes) {
    for (int repeat = 0; repeat < 300; ++repeat) {
      const std::size_t count = 1 + below(1100, random);
      Buffer values = finite_values(count, dtype, random);
      CHECK(exponent_of(values, count, dtype) != wire::kNotFinite);
      put_rounded(values, below(count, random), dtype,
                  pick({HUGE_VAL, -HUGE_VAL, std::nan("")}, random));
      CHECK(exponent_of(values, count, dtype) == wire::kNotFinite);
      CHECK(proto::finite_exponent(values.data(), count, dtype) ==
            reference_exponent({values}, 0, count, dtype) + 127);
    }
  }
}

TEST_CASE("integers have as many bits as sums of so many workers have room for") {
  for (std::uint32_t workers = 1; workers <= 70'000; workers += workers < 200 ? 1 : 997) {
    CAPTURE(workers);
    CHECK(FixedPoint(workers).bits() == reference_bits(workers));
  }
  CHECK(FixedPoint(1).bits() == 30);
  CHECK(FixedPoint(2).bits() == 29);
  CHECK(FixedPoint(4).bits() == 28);
}

TEST_CASE("any values: no sum overflows, and the error keeps its bound") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const DType dtype = pick(kFixedTypes, random);
    const std::size_t workers = one_in(3, random) ? 64 : 1 + below(64, random);
    const std::size_t count = 1 + below(40, random);
    const FixedPoint fixed(static_cast<std::uint32_t>(workers));
    std::vector<Buffer> inputs;
    std::uint8_t exponent = 0;
    for (std::size_t i = 0; i < workers; ++i) {
      inputs.push_back(finite_values(count, dtype, random));
      exponent = std::max(exponent, exponent_of(inputs[i], count, dtype));
    }
    std::vector<std::int64_t> sums(count);
    for (const Buffer& input : inputs) {
      std::vector<std::int32_t> integers(count);
      fixed.encode(reinterpret_cast<std::byte*>(integers.data()), input.data(), count, dtype,
                   exponent);
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(std::abs(std::int64_t{integers[i]}) <= std::int64_t{1} << fixed.bits());
        sums[i] += integers[i];
      }
    }
    std::vector<std::int32_t> wrapped(sums.begin(), sums.end());
    for (std::size_t i = 0; i < count; ++i) REQUIRE(wrapped[i] == sums[i]);
    Buffer out(count * element_size(dtype));
    fixed.decode(out.data(), reinterpret_cast<const std::byte*>(wrapped.data()), count, dtype,
                 ReduceOp::sum, exponent);
    const double bound =
        static_cast<double>(workers) * std::ldexp(1.0, exponent - 127 - fixed.bits());
    for (std::size_t i = 0; i < count; ++i) {
      long double exact = 0;
      for (const Buffer& input : inputs) exact += widened(input, i, dtype);
      const double result = widened(out, i, dtype);
      if (std::isinf(result)) {
        REQUIRE(std::fabs(static_cast<double>(exact)) + bound >= largest_of(dtype));
        continue;
      }
      const int unit = std::max(
          (exact == 0 ? -1000 : std::ilogb(static_cast<double>(exact))) - digits_of(dtype) + 1,
          smallest_of(dtype));
      REQUIRE(std::fabs(static_cast<double>(exact - result)) <= bound + std::ldexp(1.0, unit));
    }
  }
}

TEST_CASE("integers and sums are those of plain arithmetic") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const DType dtype = pick(kFixedTypes, random);
    const std::size_t workers = 1 + below(64, random);
    const std::size_t count = 1 + below(1100, random);
    const auto exponent = static_cast<std::uint8_t>(1 + below(254, random));
    const FixedPoint fixed(static_cast<std::uint32_t>(workers));
    const int shift = fixed.bits() - (exponent - 127) - 1;
    Buffer values = finite_values(count, dtype, random);
    if (exponent_of(values, count, dtype) <= exponent) {
      std::vector<std::int32_t> integers(count);
      fixed.encode(reinterpret_cast<std::byte*>(integers.data()), values.data(), count, dtype,
                   exponent);
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(integers[i] == std::llrint(std::ldexp(widened(values, i, dtype), shift)));
      }
    }
    const ReduceOp op = pick({ReduceOp::sum, ReduceOp::avg}, random);
    std::vector<std::int32_t> sums(count);
    for (auto& sum : sums) sum = static_cast<std::int32_t>(random() >> (32 + below(32, random)));
    Buffer expected(values.size());
    for (std::size_t i = 0; i < count; ++i) {
      put_rounded(
          expected, i, dtype,
          std::ldexp(sums[i], -shift) / (op == ReduceOp::avg ? static_cast<double>(workers) : 1.0));
    }
    fixed.decode(values.data(), reinterpret_cast<const std::byte*>(sums.data()), count, dtype, op,
                 exponent);
    REQUIRE(same(values, expected));
  }
}

// Between two halves, and a little above the middle: in float32 that little is lost.
TEST_CASE("half types round once") {
  const FixedPoint fixed(1);
  const std::int32_t sums[] = {(1 << 30) + (1 << 19) + 1, (1 << 30) + (1 << 22) + 1};
  std::uint16_t out[2];
  const auto decode = [&](DType dtype) {
    fixed.decode(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(sums), 2,
                 dtype, ReduceOp::sum, 127 + 0);
  };
  decode(DType::float16);
  CHECK(half_to_float(out[0]) == 2.0f * (1 + 0x1p-10f));
  decode(DType::bfloat16);
  CHECK(bfloat16_to_float(out[1]) == 2.0f * (1 + 0x1p-7f));
}

}  // namespace fixed_point_test
