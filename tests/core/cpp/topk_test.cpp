// Top-k sparsification: what is sent is the largest, in few bits, and what remains is exact.
#include "kernels/topk.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

using namespace sparsewire;

namespace {

constexpr unsigned kAllBits[] = {2, 4, 8, 32};

std::vector<std::byte> compress(const TopK& format, const std::vector<float>& gradient,
                                std::vector<float>& residual) {
  std::vector<std::byte> records(format.bytes(gradient.size()));
  format.compress(gradient.data(), residual.data(), gradient.size(), records.data());
  return records;
}

std::vector<float> decode(const TopK& format, const std::vector<std::byte>& records,
                          std::size_t count) {
  std::vector<float> values(count, std::numeric_limits<float>::quiet_NaN());
  format.mean(records.data(), records.size(), 1, count, values.data());
  return values;
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-20, 20);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(normal(generator), exponent(generator));
  return values;
}

}  // namespace

TEST_CASE("a record of 4 of 512 in 4 bits takes 8 bytes") {
  CHECK(TopK{512, 4, 4}.record_bytes() == 8);
  CHECK(TopK{512, 4, 4}.bytes(1025) == 24);
  CHECK(TopK{512, 4, 32}.record_bytes() == 21);
  CHECK(TopK{1, 1, 2}.record_bytes() == 2);
}

TEST_CASE("what is sent and what remains add up to what was there, to the last bit") {
  for (const unsigned bits : kAllBits) {
    for (const std::size_t count : {1u, 15u, 16u, 511u, 512u, 513u, 5000u}) {
      for (const std::size_t k : {1u, 4u, 17u, 300u}) {
        const TopK format{512, k, bits};
        std::vector<float> residual = random_values(count, 1);
        const std::vector<float> gradient = random_values(count, 2);
        std::vector<float> owed(count);
        for (std::size_t i = 0; i < count; ++i) owed[i] = residual[i] + gradient[i];
        const auto sent = decode(format, compress(format, gradient, residual), count);
        bool exact = true;
        for (std::size_t i = 0; i < count; ++i) exact &= owed[i] - sent[i] == residual[i];
        for (std::size_t i = 0; i < count; ++i) exact &= owed[i] - residual[i] == sent[i];
        CHECK(exact);
      }
    }
  }
}

TEST_CASE("the largest of each bucket are sent, of equal ones the first") {
  const TopK format{64, 2, 32};
  std::vector<float> gradient(200, 1.0f);
  gradient[70] = -3.0f;
  gradient[127] = 2.0f;
  gradient[199] = 0.5f;
  std::vector<float> residual(gradient.size());
  const auto sent = decode(format, compress(format, gradient, residual), gradient.size());
  std::vector<float> expected(gradient.size());
  for (const std::size_t position : {0, 1, 128, 129, 192, 193}) expected[position] = 1.0f;
  expected[70] = -3.0f;
  expected[127] = 2.0f;
  CHECK(sent == expected);
}

TEST_CASE("a value at half of the smallest level is not sent, the largest is within a half level") {
  const TopK format{8, 8, 4};
  const std::vector<float> gradient = {7.0f, 0.5f, 0.51f, -6.6f, 0.0f, -0.25f, 3.5f, 2.5f};
  std::vector<float> residual(gradient.size());
  const auto sent = decode(format, compress(format, gradient, residual), gradient.size());
  CHECK(sent == std::vector<float>{7, 0, 1, -7, 0, 0, 4, 2});
}

TEST_CASE("zeros make records of zeros") {
  for (const unsigned bits : kAllBits) {
    const TopK format{512, 4, bits};
    const std::vector<float> gradient(1000, -0.0f);
    std::vector<float> residual(gradient.size());
    const auto records = compress(format, gradient, residual);
    CHECK(
        std::all_of(records.begin(), records.end(), [](std::byte b) { return b == std::byte{}; }));
  }
}

TEST_CASE("the mean over ranks is that of what they sent") {
  const TopK format{128, 3, 8};
  constexpr std::size_t count = 1000, ranks = 4;
  std::vector<std::byte> all;
  std::vector<float> expected(count);
  for (unsigned rank = 0; rank < ranks; ++rank) {
    std::vector<float> residual(count);
    const auto records = compress(format, random_values(count, rank), residual);
    const auto sent = decode(format, records, count);
    for (std::size_t i = 0; i < count; ++i) expected[i] += sent[i];
    all.insert(all.end(), records.begin(), records.end());
  }
  for (float& value : expected) value /= ranks;
  std::vector<float> mean(count);
  format.mean(all.data(), format.bytes(count), ranks, count, mean.data());
  CHECK(mean == expected);
}

TEST_CASE("whatever bytes arrive, only the vector is written") {
  constexpr std::size_t count = 1000, guard = 300;
  std::mt19937 generator(7);
  for (const unsigned bits : kAllBits) {
    const TopK format{300, 5, bits};
    std::vector<std::byte> records(format.bytes(count));
    for (std::byte& each : records) each = static_cast<std::byte>(generator());
    std::vector<float> out(count + guard, -1.0f);
    format.mean(records.data(), records.size(), 1, count, out.data());
    CHECK(std::count(out.begin() + count, out.end(), -1.0f) == guard);
  }
}
