// Every SIMD level against plain scalar code, to the last bit; so all levels agree with each other.
#include "kernels/kernels.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/bitmap.hpp"
#include "elements.hpp"

namespace kernels_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::uint64_t kGuard = 0xa5a5a5a5a5a5a5a5u;

// A heap block of exactly the bytes asked for, shifted off its alignment, so that an address
// sanitizer sees every access beyond either end.
struct Unaligned {
  explicit Unaligned(std::size_t bytes) : storage(bytes + 1) {}
  explicit Unaligned(const Buffer& content) : Unaligned(content.size()) {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  std::byte* data() { return storage.data() + 1; }
  Buffer content() const { return Buffer(storage.begin() + 1, storage.end()); }

  Buffer storage;
};
// --- scan ---

struct Scanned {
  std::vector<std::uint64_t> bitmap;
  std::size_t nonzero = 0;
  bool negative_zeros = false;

  bool operator==(const Scanned&) const = default;
};

Scanned reference_scan(const Buffer& data, DType dtype, std::size_t block) {
  const std::size_t size = element_size(dtype);
  const std::size_t count = data.size() / size;
  const std::size_t blocks = ceil_div(count, block);
  Scanned result{std::vector<std::uint64_t>(bitmap_words(blocks)), 0, false};
  for (std::size_t b = 0; b < blocks; ++b) {
    bool nonzero = false;
    bool negative_zero = false;
    for (std::size_t i = b * block; i < std::min(count, (b + 1) * block); ++i) {
      std::uint64_t pattern = 0;
      std::memcpy(&pattern, data.data() + i * size, size);
      const bool only_sign = pattern == std::uint64_t{1} << (8 * size - 1) && is_floating(dtype);
      negative_zero |= only_sign;
      nonzero |= pattern != 0 && !only_sign;
    }
    result.bitmap[b / 64] |= std::uint64_t{nonzero} << (b % 64);
    result.nonzero += nonzero;
    result.negative_zeros |= negative_zero && !nonzero;
  }
  return result;
}

Scanned scan_with(const Kernels& table, const Buffer& data, DType dtype, std::size_t block) {
  Unaligned input(data);
  const std::size_t count = data.size() / element_size(dtype);
  const std::size_t words = bitmap_words(ceil_div(count, block));
  std::vector<std::uint64_t> bitmap(words + 1, kGuard);
  const ScanResult result = table.scan(input.data(), count, dtype, block, bitmap.data());
  CHECK(bitmap.back() == kGuard);
  bitmap.pop_back();
  return {bitmap, result.nonzero, result.negative_zeros};
}

// Zeros of both signs where `negative` says so, and some special values at random places.
Buffer sparse_elements(std::size_t count, DType dtype, std::size_t values, bool negative,
                       std::mt19937_64& random) {
  Buffer data(count * element_size(dtype));
  if (count == 0) return data;
  const auto special = special_patterns(dtype);
  if (negative) store_pattern(data.data(), random() % count, dtype, special[1]);
  for (std::size_t i = 0; i < values; ++i) {
    const std::uint64_t pattern = special[2 + random() % (special.size() - 2)];
    store_pattern(data.data(), random() % count, dtype, pattern);
  }
  return data;
}

TEST_CASE("scan agrees with scalar code") {
  std::mt19937_64 random(1);
  for (const Kernels* table : available_kernels()) {
    for (const DType dtype : kDTypes) {
      for (const std::size_t block : {16u, 32u, 128u, 256u, 4096u}) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 3 * block + 7,
              (block < 4096 ? 64 : 4) * block, (block < 256 ? 130 : 3) * block + 5}) {
          for (const std::size_t values : {0u, 1u, 20u}) {
            const bool negative = values != 1;
            const Buffer data = sparse_elements(count, dtype, values, negative, random);
            CAPTURE(name_of(table->level));
            CAPTURE(name_of(dtype));
            CAPTURE(block);
            CAPTURE(count);
            CHECK(scan_with(*table, data, dtype, block) == reference_scan(data, dtype, block));
          }
        }
      }
    }
  }
}

TEST_CASE("scan finds a value at every place of a block") {
  for (const Kernels* table : available_kernels()) {
    for (const DType dtype : kDTypes) {
      constexpr std::size_t block = 1024;
      Buffer data(2 * block * element_size(dtype));
      for (std::size_t i = 0; i < 2 * block; ++i) {
        store_pattern(data.data(), i, dtype, 1);
        const Scanned found = scan_with(*table, data, dtype, block);
        CHECK(found.bitmap[0] == (i < block ? 1 : 2));
        store_pattern(data.data(), i, dtype, 0);
      }
    }
  }
}

TEST_CASE("scan tells negative zeros in zero blocks only") {
  for (const Kernels* table : available_kernels()) {
    std::vector<float> values(64, 0.0f);
    const auto negative_zeros = [&] {
      std::uint64_t bitmap = 0;
      const auto* const data = reinterpret_cast<const std::byte*>(values.data());
      return table->scan(data, values.size(), DType::float32, 32, &bitmap).negative_zeros;
    };
    CHECK_FALSE(negative_zeros());
    values[40] = -0.0f;
    CHECK(negative_zeros());
    values[33] = 1.0f;
    CHECK_FALSE(negative_zeros());
  }
}

// --- start, add, finish ---

void check_reduction(const Kernels& table, DType dtype, ReduceOp op,
                     const std::vector<Buffer>& inputs) {
  with_codec(dtype, [&](auto read, auto write) {
    using A = decltype(read(nullptr, 0));
    const std::size_t count = inputs[0].size() / element_size(dtype);
    const auto world_size = static_cast<std::int32_t>(inputs.size());
    Buffer expected_acc(count * sizeof(A));
    Buffer expected(inputs[0].size());
    for (std::size_t i = 0; i < count; ++i) {
      A acc = reference_start(read(inputs[0].data(), i), op);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
        acc = reference_add(acc, read(inputs[rank].data(), i), op);
      }
      store(expected_acc.data(), i, acc);
      write(expected.data(), i, reference_finish(acc, op, world_size));
    }

    Unaligned acc(expected_acc.size());
    Unaligned first(inputs[0]);
    table.start(acc.data(), first.data(), count, dtype, op);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      Unaligned x(inputs[rank]);
      table.add(acc.data(), x.data(), count, dtype, op);
    }
    Unaligned out(expected.size());
    table.finish(out.data(), acc.data(), count, dtype, op, world_size);
    CHECK((acc.content() == expected_acc));
    CHECK((out.content() == expected));
  });
}

TEST_CASE("reductions agree with scalar code") {
  std::mt19937_64 random(2);
  for (const DType dtype : kDTypes) {
    for (const std::size_t count : {0u, 1u, 7u, 8u, 15u, 33u, 511u, 512u, 513u, 4099u}) {
      std::vector<Buffer> inputs;
      for (int rank = 0; rank < 3; ++rank) {
        inputs.push_back(random_elements(count, dtype, random));
      }
      for (const Kernels* table : available_kernels()) {
        for (const ReduceOp op : kOps) {
          CAPTURE(name_of(table->level));
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(op));
          CAPTURE(count);
          check_reduction(*table, dtype, op, inputs);
        }
      }
    }
  }
}

TEST_CASE("start and finish work in place") {
  std::mt19937_64 random(3);
  constexpr std::size_t count = 1001;
  for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64}) {
    const Buffer input = random_elements(count, dtype, random);
    for (const Kernels* table : available_kernels()) {
      Buffer apart(input.size());
      Buffer out(input.size());
      table->start(apart.data(), input.data(), count, dtype, ReduceOp::avg);
      table->finish(out.data(), apart.data(), count, dtype, ReduceOp::avg, 3);
      Buffer same = input;
      table->start(same.data(), same.data(), count, dtype, ReduceOp::avg);
      CHECK((same == apart));
      table->finish(same.data(), same.data(), count, dtype, ReduceOp::avg, 3);
      CHECK((same == out));
    }
  }
}

TEST_CASE("a sum of negative zeros is a positive zero") {
  for (const Kernels* table : available_kernels()) {
    const float x = -0.0f;
    float acc = 1.0f;
    const auto* const input = reinterpret_cast<const std::byte*>(&x);
    auto* const output = reinterpret_cast<std::byte*>(&acc);
    table->start(output, input, 1, DType::float32, ReduceOp::sum);
    table->add(output, input, 1, DType::float32, ReduceOp::sum);
    CHECK_FALSE(std::signbit(acc));
    table->start(output, input, 1, DType::float32, ReduceOp::max);
    CHECK(std::signbit(acc));
  }
}

// --- Half conversions, seen through start and finish, which only convert where op is max. ---

std::vector<float> widened(const Kernels& table, DType dtype) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  table.start(reinterpret_cast<std::byte*>(floats.data()),
              reinterpret_cast<const std::byte*>(halves.data()), halves.size(), dtype,
              ReduceOp::max);
  return floats;
}

std::vector<std::uint16_t> narrowed(const Kernels& table, DType dtype,
                                    const std::vector<float>& floats) {
  std::vector<std::uint16_t> halves(floats.size());
  table.finish(reinterpret_cast<std::byte*>(halves.data()),
               reinterpret_cast<const std::byte*>(floats.data()), floats.size(), dtype,
               ReduceOp::max, 1);
  return halves;
}

// Floats spread over all bit patterns, and those around each half and each tie between two.
std::vector<float> float_samples(DType dtype, float (*widen)(std::uint16_t)) {
  std::vector<float> samples;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 8191) {
    samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  const unsigned dropped = dtype == DType::float16 ? 13 : 16;
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto bits = std::bit_cast<std::uint32_t>(widen(static_cast<std::uint16_t>(half)));
    const std::uint32_t tie = 1u << (dropped - 1);
    for (const std::uint32_t offset : {0u, 1u, ~0u, tie, tie - 1, tie + 1}) {
      samples.push_back(std::bit_cast<float>(bits + offset));
    }
  }
  for (std::uint32_t unit = 0; unit < 2100; ++unit) {  // Ties between subnormal halves.
    const float tie = std::ldexp(static_cast<float>(unit), -25);
    for (const float near : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1.0f)}) {
      samples.push_back(near);
      samples.push_back(-near);
    }
  }
  return samples;
}

void check_conversions(DType dtype, float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)) {
  const std::vector<float> samples = float_samples(dtype, widen);
  std::vector<std::uint16_t> expected;
  for (const float sample : samples) expected.push_back(narrow(sample));
  for (const Kernels* table : available_kernels()) {
    CAPTURE(name_of(table->level));
    const std::vector<float> floats = widened(*table, dtype);
    std::size_t wrong = 0;
    for (std::uint32_t half = 0; half < 65536; ++half) {
      wrong += std::bit_cast<std::uint32_t>(floats[half]) !=
               std::bit_cast<std::uint32_t>(widen(static_cast<std::uint16_t>(half)));
    }
    CHECK(wrong == 0);
    CHECK((narrowed(*table, dtype, samples) == expected));
  }
}

TEST_CASE("float16 converts exactly") {
  check_conversions(DType::float16, half_to_float, float_to_half);
}

TEST_CASE("bfloat16 converts exactly") {
  check_conversions(DType::bfloat16, bfloat16_to_float, float_to_bfloat16);
}

// --- The choice of a level. ---

TEST_CASE("a level can be chosen") {
  const SimdLevel before = kernels().level;
  CHECK(before == available_kernels().back()->level);
  for (const Kernels* table : available_kernels()) {
    CHECK(select_kernels(table->level));
    CHECK(&kernels() == table);
  }
  CHECK(select_kernels(before));
}

}  // namespace kernels_test
