// Elements of every type, as plain scalar code sees them: reference arithmetic that the engine must
// match to the last bit, and random values in which the special ones are frequent.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "base/types.hpp"

namespace sparsewire::test {

using Buffer = std::vector<std::byte>;

// Word by word, and past the thread sanitizer, which would look at every byte.
[[gnu::no_sanitize_thread]] inline bool same(std::span<const std::byte> a,
                                             std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  const std::byte* const left = a.data();
  const std::byte* const right = b.data();
  std::size_t at = 0;
  for (; at + 8 <= a.size(); at += 8) {
    if (__builtin_memcmp(left + at, right + at, 8) != 0) return false;
  }
  for (; at < a.size(); ++at) {
    if (left[at] != right[at]) return false;
  }
  return true;
}

inline constexpr DType kDTypes[] = {DType::float32,  DType::float64, DType::float16,
                                    DType::bfloat16, DType::int32,   DType::int64};
inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                                    ReduceOp::product};

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

inline constexpr std::uint32_t kQuietFloat = 1u << 22;

inline float half_to_float(std::uint16_t half) {
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
inline double round_to(double value, int digits, int smallest) {
  if (value == 0 || std::isinf(value)) return value;
  const int unit = std::max(std::ilogb(value) - digits + 1, smallest);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline std::uint16_t float_to_half(float value) {
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

inline float bfloat16_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
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
inline std::vector<std::uint64_t> special_patterns(unsigned bits, unsigned mantissa) {
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

inline std::vector<std::uint64_t> special_patterns(DType dtype) {
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

inline void store_pattern(std::byte* data, std::size_t index, DType dtype, std::uint64_t pattern) {
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

// Writes elements: a third special values, a third random bits, a third ordinary numbers.
class RandomElements {
 public:
  explicit RandomElements(DType dtype) : dtype_(dtype), special_(special_patterns(dtype)) {}

  void put(std::byte* data, std::size_t index, std::mt19937_64& random) const {
    switch (random() % 3) {
      case 0:
        return store_pattern(data, index, dtype_, special_[random() % special_.size()]);
      case 1:
        return store_pattern(data, index, dtype_, random());
      default:
        return put_number(data, index, static_cast<double>(random() % 20001) - 10000);
    }
  }

 private:
  void put_number(std::byte* data, std::size_t index, double number) const {
    with_codec(dtype_, [&](auto read, auto write) {
      using A = decltype(read(data, index));
      write(data, index, static_cast<A>(number / (std::is_integral_v<A> ? 1 : 64)));
    });
  }

  DType dtype_;
  std::vector<std::uint64_t> special_;
};

inline Buffer random_elements(std::size_t count, DType dtype, std::mt19937_64& random) {
  Buffer data(count * element_size(dtype));
  const RandomElements elements(dtype);
  for (std::size_t i = 0; i < count; ++i) elements.put(data.data(), i, random);
  return data;
}

}  // namespace sparsewire::test
