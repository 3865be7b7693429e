// Codecs: what comes back of the values, and that the errors are of the size and kind they should.
#include "codecs.hpp"

namespace codec_errors_test {

using namespace sparsewire;
using namespace sparsewire::test;

// --- Round trips ---

TEST_CASE("raw keeps every bit") {
  Random random(1);
  for (const std::size_t count : kCounts) {
    Buffer bytes = random_elements(count, DType::float32, random);
    Floats values(count);
    if (count != 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    for (const Kernels* table : available_kernels()) {
      Encoded encoded = encode(*table, Codec::raw, values, 1);
      CHECK((Buffer(encoded.view().begin(), encoded.view().end()) == bytes));
      Buffer back(bytes.size());
      Floats decoded = decode(*table, Codec::raw, encoded, count);
      if (count != 0) std::memcpy(back.data(), decoded.data(), back.size());
      CHECK((back == bytes));
    }
  }
}

// NaN compares by bits.
void check_half(Codec codec, std::uint16_t (*narrow)(float), float (*widen)(std::uint16_t)) {
  Random random(2);
  for (const std::size_t count : kCounts) {
    Floats values = random_floats(count, random);
    if (count > 8) values[3] = kInf;
    if (count > 8) values[5] = -kNan;
    for (const Kernels* table : available_kernels()) {
      Encoded encoded = encode(*table, codec, values, 1);
      const Floats decoded = decode(*table, codec, encoded, count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint16_t half = narrow(values[i]);
        REQUIRE(load<std::uint16_t>(encoded.data(), i) == half);
        REQUIRE(std::bit_cast<std::uint32_t>(decoded[i]) ==
                std::bit_cast<std::uint32_t>(widen(half)));
      }
    }
  }
}

TEST_CASE("half types round to nearest even and keep infinities and NaN") {
  check_half(Codec::bfloat16, float_to_bfloat16, bfloat16_to_float);
  check_half(Codec::float16, float_to_half, half_to_float);
}

TEST_CASE("half types refuse finite values that would become infinite") {
  CHECK(can_encode(Codec::float16, {1, 65519.996f, -65519.996f, kInf, kNan}));
  CHECK_FALSE(can_encode(Codec::float16, {1, 65520}));
  CHECK_FALSE(can_encode(Codec::float16, {-65520, 1}));
  CHECK_FALSE(can_encode(Codec::float16, {-kHuge}));
  const float largest = std::bit_cast<float>(0x7f7f7fffu);
  CHECK(can_encode(Codec::bfloat16, {largest, -largest, -kInf, kNan}));
  CHECK_FALSE(can_encode(Codec::bfloat16, {std::nextafter(largest, kInf)}));
  CHECK_FALSE(can_encode(Codec::bfloat16, {0, -kHuge}));
}

TEST_CASE("quantised codecs refuse what is not finite, wherever it is") {
  for (const Codec codec : kQuantised) {
    for (const float bad : {kInf, -kInf, kNan, -kNan}) {
      for (const std::size_t at : {0u, 7u, 1023u, 1024u, 1029u}) {
        Floats values(1030, 1.0f);
        CHECK(can_encode(codec, values));
        values[at] = bad;
        CHECK_FALSE(can_encode(codec, values));
      }
    }
  }
}

TEST_CASE("every level gives the same bytes and values") {
  Random random(3);
  for (const Codec codec : kQuantised) {
    for (const std::size_t count : kCounts) {
      for (const bool wild : {false, true}) {
        const Floats values = wild ? wild_floats(count, random) : random_floats(count, random);
        const std::uint64_t key = random();
        const Kernels& first = *available_kernels().front();
        const Encoded expected = encode(first, codec, values, key);
        for (const Kernels* table : available_kernels()) {
          CAPTURE(name_of(table->level));
          CAPTURE(name_of(codec));
          CAPTURE(count);
          CHECK((encode(*table, codec, values, key) == expected));
          CHECK((decode(*table, codec, expected, count) == decode(first, codec, expected, count)));
        }
      }
    }
  }
}

TEST_CASE("the functions use the level in use") {
  const Floats values{1, -2, 3, 0.4f};
  Encoded encoded(bytes_of(Codec::int8, 4));
  REQUIRE(encode_values(Codec::int8, values.data(), 4, 9, encoded.data()));
  CHECK((encoded == encode(Codec::int8, values, 9)));
  Floats decoded(4);
  decode_values(Codec::int8, encoded.data(), 4, decoded.data());
  CHECK((decoded == round_trip(Codec::int8, values, 9)));
}

// --- Errors ---

// The bound, and what rounding in float32 adds to it.
double error_bound(Codec codec, float scale) {
  return static_cast<double>(scale) / levels_of(codec) * (1 + 1e-5) + kTiny;
}

TEST_CASE("an error is below one level, and the largest value of a span is exact") {
  Random random(4);
  for (const Codec codec : kQuantised) {
    for (const std::size_t count : kCounts) {
      for (const bool wild : {false, true}) {
        const Floats values = wild ? wild_floats(count, random) : random_floats(count, random);
        const Floats decoded = round_trip(codec, values, random());
        for_each_span_of(values, [&](std::size_t first, std::size_t length, float scale) {
          for (std::size_t i = first; i < first + length; ++i) {
            const double error = static_cast<double>(decoded[i]) - values[i];
            REQUIRE(std::fabs(error) <= error_bound(codec, scale));
            REQUIRE(std::fabs(decoded[i]) <= scale);
            if (std::fabs(values[i]) == scale) REQUIRE(decoded[i] == values[i]);
          }
        });
      }
    }
  }
}

TEST_CASE("spans of huge, subnormal and zero values keep their scale") {
  for (const Codec codec : kQuantised) {
    for (const float scale : {kHuge, 1e38f, 1e-38f, 100 * kTiny, kTiny, 0.0f}) {
      CAPTURE(scale);
      const Floats values{scale, -scale, 0.0f, -0.0f, scale / 3, -scale / 3};
      const Floats decoded = round_trip(codec, values, 6);
      CHECK(decoded[0] == scale);
      CHECK(decoded[1] == -scale);
      for (const std::size_t zero : {2u, 3u}) {
        CHECK(std::bit_cast<std::uint32_t>(decoded[zero]) == 0);
      }
      for (std::size_t i = 4; i < values.size(); ++i) {
        CHECK(std::fabs(double{decoded[i]} - values[i]) <= error_bound(codec, scale));
      }
    }
  }
}

// --- The random part ---

struct Moments {
  std::vector<double> error;  // the mean error of each value
  double variance = 0;        // the mean square of the error of the span's sum
};

constexpr int kKeys = 4000;

Moments moments_of(Codec codec, const Floats& values, std::uint64_t key_step) {
  Moments moments{std::vector<double>(values.size())};
  for (int round = 0; round < kKeys; ++round) {
    const Floats decoded = round_trip(codec, values, static_cast<std::uint64_t>(round) * key_step);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(decoded[i]) - values[i];
      moments.error[i] += error / kKeys;
      sum += error;
    }
    moments.variance += sum * sum / kKeys;
  }
  return moments;
}

// The variance of one value's error: that of a coin that decides between two levels.
double variance_of(Codec codec, float value, float scale) {
  const double unit = static_cast<double>(scale) / levels_of(codec);
  const double level = std::fabs(value) / unit;
  const double up = level - std::floor(level);
  return up * (1 - up) * unit * unit;
}

TEST_CASE("the mean over keys is the value, and errors of a span are independent") {
  Random random(7);
  Floats values(kSpan);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random);
  values[0] = 1;
  for (const Codec codec : kQuantised) {
    // Keys that differ in the low bits, in the high bits, and by the generator's own constant.
    for (const std::uint64_t step :
         {std::uint64_t{1}, std::uint64_t{1} << 40, 0x9e3779b97f4a7c15u}) {
      CAPTURE(name_of(codec));
      CAPTURE(step);
      const Moments moments = moments_of(codec, values, step);
      const double five_sigma = 5 / (2 * levels_of(codec) * std::sqrt(kKeys));
      double variance = 0;
      double mean = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        REQUIRE(std::fabs(moments.error[i]) <= five_sigma);
        mean += moments.error[i];
        variance += variance_of(codec, values[i], 1);
      }
      CHECK(std::fabs(mean) <= 5 * std::sqrt(variance / kKeys));
      // The ratio has a standard deviation of sqrt(2 / keys).
      CHECK(std::fabs(moments.variance / variance - 1) <= 5 * std::sqrt(2.0 / kKeys));
    }
  }
}

double share_of_equal_levels(const Floats& a, const Floats& b) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

TEST_CASE("spans and keys draw apart, equal ones alike") {
  constexpr std::size_t count = 64 * kSpan;
  Floats values(count, 0.5f);
  for (std::size_t i = 0; i < count; i += kSpan) values[i] = 1;
  const double tolerance = 5 * 0.5 / std::sqrt(static_cast<double>(count));
  const Floats decoded = round_trip(Codec::int2, values, 100);
  CHECK((round_trip(Codec::int2, values, 100) == decoded));
  for (const std::uint64_t key : {0ull, 101ull, 100ull + (1ull << 32), ~100ull}) {
    const double share = share_of_equal_levels(decoded, round_trip(Codec::int2, values, key));
    CHECK(std::fabs(share - 0.5) <= tolerance + 1.0 / kSpan);
  }
  Floats rotated = decoded;
  std::rotate(rotated.begin(), rotated.begin() + kSpan, rotated.end());
  CHECK(std::fabs(share_of_equal_levels(decoded, rotated) - 0.5) <= tolerance + 1.0 / kSpan);
}

}  // namespace codec_errors_test
