// Every SIMD level against plain scalar code, to the last bit; so all levels agree with each other.
#include "kernels/kernels.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/bitmap.hpp"
#include "kernels/blocks.hpp"

namespace {

using namespace sparsewire;

using Buffer = std::vector<std::byte>;

constexpr DType kDTypes[] = {DType::float32,  DType::float64, DType::float16,
                             DType::bfloat16, DType::int32,   DType::int64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                             ReduceOp::product};
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

template <typename T>
T load(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* data, std::size_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

// --- Reference conversions, by arithmetic instead of by bits. ---

constexpr std::uint32_t kQuietFloat = 1u << 22;

float half_to_float(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  const bool negative = half & 0x8000;
  if (exponent == 31 && mantissa != 0) {
    const std::uint32_t sign = negative ? 0x80000000u : 0;
    const std::uint32_t payload = static_cast<std::uint32_t>(mantissa) << 13;
    return std::bit_cast<float>(sign | 0x7f800000u | kQuietFloat | payload);
  }
  float magnitude = std::numeric_limits<float>::infinity();
  if (exponent == 0) magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent > 0 && exponent < 31) {
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return negative ? -magnitude : magnitude;
}

// Rounds `value` to `digits` significant bits, and to no finer than 2^smallest: ties go to even.
double round_to(double value, int digits, int smallest) {
  if (value == 0 || std::isinf(value)) return value;
  const int unit = std::max(std::ilogb(value) - digits + 1, smallest);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(value))
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  const double rounded = round_to(std::fabs(value), 11, -24);
  if (rounded >= 65536) return sign | 0x7c00u;
  if (rounded < std::ldexp(1.0, -14)) {
    return static_cast<std::uint16_t>(sign + std::lround(std::ldexp(rounded, 24)));
  }
  const int exponent = std::ilogb(rounded);
  const long mantissa = std::lround(std::ldexp(rounded, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign + ((exponent + 15) << 10) + mantissa);
}

float bfloat16_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  const double rounded = round_to(static_cast<double>(value), 8, -133);
  const float narrowed = static_cast<float>(rounded);  // Overflows to infinity where it should.
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(narrowed) >> 16);
}

// --- Reference reductions, on one element in the accumulator type A. ---

template <typename A>
A reference_start(A x, ReduceOp op) {
  return skips_zeros(op) ? static_cast<A>(A{0} + x) : x;
}

template <typename A>
A reference_add(A acc, A x, ReduceOp op) {
  using U = std::conditional_t<std::is_integral_v<A>, std::make_unsigned<A>, std::type_identity<A>>;
  using Wrapping = typename U::type;
  const bool x_is_nan = x != x;
  const bool acc_is_nan = acc != acc;
  switch (op) {
    case ReduceOp::min:
      return x < acc || x_is_nan ? x : acc;
    case ReduceOp::max:
      return x > acc || x_is_nan ? x : acc;
    case ReduceOp::product:
      return acc_is_nan ? acc
                        : static_cast<A>(static_cast<Wrapping>(acc) * static_cast<Wrapping>(x));
    default:
      return acc_is_nan ? acc
                        : static_cast<A>(static_cast<Wrapping>(acc) + static_cast<Wrapping>(x));
  }
}

template <typename A>
A reference_finish(A acc, ReduceOp op, std::int32_t world_size) {
  return op == ReduceOp::avg ? static_cast<A>(acc / static_cast<A>(world_size)) : acc;
}

// Calls visit(read, write) where read(data, i) gives an accumulator value and write puts it back.
template <typename Visit>
void with_codec(DType dtype, Visit&& visit) {
  const auto plain = [&]<typename T>(T) {
    visit([](const std::byte* data, std::size_t i) { return load<T>(data, i); },
          [](std::byte* data, std::size_t i, T value) { store(data, i, value); });
  };
  const auto half = [&](auto widen, auto narrow) {
    visit([=](const std::byte* data, std::size_t i) { return widen(load<std::uint16_t>(data, i)); },
          [=](std::byte* data, std::size_t i, float value) { store(data, i, narrow(value)); });
  };
  switch (dtype) {
    case DType::float32:
      return plain(float{});
    case DType::float64:
      return plain(double{});
    case DType::int32:
      return plain(std::int32_t{});
    case DType::int64:
      return plain(std::int64_t{});
    case DType::float16:
      return half(half_to_float, float_to_half);
    case DType::bfloat16:
      return half(bfloat16_to_float, float_to_bfloat16);
  }
}

// --- Inputs. ---

// Bit patterns that are special in a float type of `bits` bits with this many mantissa bits, and in
// integers: zeros, infinities, NaNs of both kinds, subnormals, largest, smallest, one.
std::vector<std::uint64_t> special_patterns(unsigned bits, unsigned mantissa) {
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const std::uint64_t infinity = (sign - 1) & ~((std::uint64_t{1} << mantissa) - 1);
  const std::uint64_t quiet = std::uint64_t{1} << (mantissa - 1);
  const std::uint64_t one = (infinity >> 1) & infinity;
  std::vector<std::uint64_t> patterns;
  for (const std::uint64_t magnitude :
       {std::uint64_t{0}, infinity, infinity | quiet, infinity | quiet | 5, infinity | 3,
        std::uint64_t{1}, std::uint64_t{7}, infinity - 1, std::uint64_t{1} << mantissa, one}) {
    patterns.push_back(magnitude);
    patterns.push_back(magnitude | sign);
  }
  return patterns;
}

std::vector<std::uint64_t> special_patterns(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return special_patterns(16, 10);
    case DType::bfloat16:
      return special_patterns(16, 7);
    case DType::float32:
    case DType::int32:
      return special_patterns(32, 23);
    default:
      return special_patterns(64, 52);
  }
}

void store_pattern(std::byte* data, std::size_t index, DType dtype, std::uint64_t pattern) {
  std::byte* const at = data + index * element_size(dtype);
  switch (element_size(dtype)) {
    case 2:
      return store(at, 0, static_cast<std::uint16_t>(pattern));
    case 4:
      return store(at, 0, static_cast<std::uint32_t>(pattern));
    default:
      return store(at, 0, pattern);
  }
}

// A third special values, a third random bits, a third ordinary numbers.
Buffer random_elements(std::size_t count, DType dtype, std::mt19937_64& random) {
  Buffer data(count * element_size(dtype));
  const auto special = special_patterns(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const auto kind = random() % 3;
    if (kind == 0) store_pattern(data.data(), i, dtype, special[random() % special.size()]);
    if (kind == 1) store_pattern(data.data(), i, dtype, random());
    if (kind == 2) {
      with_codec(dtype, [&](auto read, auto write) {
        using A = decltype(read(data.data(), i));
        const auto number = static_cast<double>(random() % 20001) - 10000;
        write(data.data(), i, static_cast<A>(number / (std::is_integral_v<A> ? 1 : 64)));
      });
    }
  }
  return data;
}

// --- scan ---

struct Scanned {
  std::vector<std::uint64_t> bitmap;
  std::size_t nonzero_blocks = 0;
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
    result.nonzero_blocks += nonzero;
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
  return {bitmap, result.nonzero_blocks, result.negative_zeros};
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

// --- pack, unpack, clear ---

TEST_CASE("pack, unpack and clear move exactly the blocks they should") {
  std::mt19937_64 random(4);
  for (const std::size_t size : {2u, 4u, 8u}) {
    for (const std::size_t block : {16u, 256u}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1,
                                      64 * block, 131 * block + 3}) {
        const std::size_t blocks = ceil_div(count, block);
        std::vector<std::uint64_t> bitmap(bitmap_words(blocks));
        for (auto& word : bitmap) word = random() & random();
        Buffer data(count * size);
        for (auto& byte : data) byte = static_cast<std::byte>(random() | 1);

        Buffer expected_packed;
        Buffer expected_cleared = data;
        Buffer expected_unpacked(data.size());
        for (std::size_t b = 0; b < blocks; ++b) {
          const auto begin = static_cast<std::ptrdiff_t>(b * block * size);
          const auto end = static_cast<std::ptrdiff_t>(std::min(count, (b + 1) * block) * size);
          if (test_bit(bitmap.data(), b)) {
            expected_packed.insert(expected_packed.end(), data.begin() + begin, data.begin() + end);
            std::copy(data.begin() + begin, data.begin() + end, expected_unpacked.begin() + begin);
          } else {
            std::fill(expected_cleared.begin() + begin, expected_cleared.begin() + end,
                      std::byte{0});
          }
        }

        Buffer packed(expected_packed.size());
        CHECK(pack(packed.data(), data.data(), count, size, block, bitmap.data()) == packed.size());
        CHECK((packed == expected_packed));
        Buffer unpacked(data.size());
        CHECK(unpack(unpacked.data(), packed.data(), count, size, block, bitmap.data()) ==
              packed.size());
        CHECK((unpacked == expected_unpacked));
        Buffer cleared = data;
        clear(cleared.data(), count, size, block, bitmap.data());
        CHECK((cleared == expected_cleared));
      }
    }
  }
}

// --- Bitmaps ---

TEST_CASE("runs cover the set bits and nothing else") {
  std::mt19937_64 random(5);
  for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 128u, 300u}) {
    for (int density = 0; density < 4; ++density) {
      std::vector<std::uint64_t> bitmap(bitmap_words(count));
      for (auto& word : bitmap) {
        word = density == 0   ? 0
               : density == 1 ? random() & random()
               : density == 2 ? random()
                              : ~0u;
        if (density == 3) word = ~std::uint64_t{0};
      }
      std::size_t expected = 0;
      for (std::size_t i = 0; i < count; ++i) expected += test_bit(bitmap.data(), i);

      std::size_t next = 0;
      std::size_t covered = 0;
      for_each_run(bitmap.data(), count, [&](std::size_t first, std::size_t length) {
        CHECK(length > 0);
        CHECK((first > next || next == 0));  // Runs are maximal: a clear bit lies between two.
        for (std::size_t i = first; i < first + length; ++i) CHECK(test_bit(bitmap.data(), i));
        next = first + length;
        covered += length;
      });
      CHECK(next <= count);
      CHECK(covered == expected);
      CHECK(count_set(bitmap.data(), count) == expected);
      CHECK(any_set(bitmap.data(), count) == (expected > 0));
      CHECK(all_set(bitmap.data(), count) == (expected == count));
    }
  }
}

}  // namespace
