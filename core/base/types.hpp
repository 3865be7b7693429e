// The vocabulary of every layer: element types, reductions, ranks, codecs, blocks, and small
// integer helpers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsewire {

enum class DType : std::uint8_t { float32 = 0, float64, float16, bfloat16, int32, int64 };
inline constexpr std::uint8_t kDTypeCount = 6;

enum class ReduceOp : std::uint8_t { sum = 0, avg, min, max, product };
inline constexpr std::uint8_t kReduceOpCount = 5;

using Rank = std::int32_t;
inline constexpr Rank kNoRank = -1;

constexpr std::size_t element_size(DType dtype) {
  constexpr std::size_t sizes[kDTypeCount] = {4, 8, 2, 2, 4, 8};
  return sizes[static_cast<std::size_t>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[kDTypeCount] = {"float32",  "float64", "float16",
                                                   "bfloat16", "int32",   "int64"};
  return names[static_cast<std::size_t>(dtype)];
}

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[kReduceOpCount] = {"sum", "avg", "min", "max", "product"};
  return names[static_cast<std::size_t>(op)];
}

// Zero is the neutral element of these only, so only they may leave zeros out.
constexpr bool skips_zeros(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg; }

constexpr bool is_floating(DType dtype) { return dtype != DType::int32 && dtype != DType::int64; }

template <typename T>
constexpr T ceil_div(T value, T divisor) {
  return value / divisor + (value % divisor != 0);
}

// How the values of a tensor are written on the wire.
// `raw` is the tensor's own type. All others are for float32 only: rounded to a half type, or
// quantised at random to signed levels of 8, 4 or 2 bits, with one scale per span.
enum class Codec : std::uint8_t { raw = 0, bfloat16, float16, int8, int4, int2 };
inline constexpr std::uint8_t kCodecCount = 6;

// Values that share a scale; the last span may have fewer.
inline constexpr std::size_t kSpan = 1024;

constexpr std::string_view name_of(Codec codec) {
  constexpr std::string_view names[kCodecCount] = {"raw",  "bfloat16", "float16",
                                                   "int8", "int4",     "int2"};
  return names[static_cast<std::size_t>(codec)];
}

// True if encoding rounds at random, and so needs a key.
constexpr bool is_stochastic(Codec codec) { return codec >= Codec::int8; }

// Bits of one encoded value, without scales, in a tensor whose elements have `element_size` bytes.
constexpr std::size_t bits_per_value(Codec codec, std::size_t element_size) {
  constexpr std::size_t bits[kCodecCount] = {0, 16, 16, 8, 4, 2};
  return codec == Codec::raw ? 8 * element_size : bits[static_cast<std::size_t>(codec)];
}

// The largest level s of a code of `bits` bits: codes are -s to s, and s stands for the scale.
constexpr std::int32_t largest_level(std::size_t bits) {
  return (std::int32_t{1} << (bits - 1)) - 1;
}

constexpr std::size_t scale_count(Codec codec, std::size_t count) {
  return is_stochastic(codec) ? ceil_div(count, kSpan) : 0;
}

// How an array is cut into blocks, the unit in which zeros are left out:
// `count` elements of `element_size` bytes in blocks of `block` elements; the last may be partial.
struct BlockLayout {
  std::size_t count;
  std::size_t element_size;
  std::size_t block;

  constexpr std::size_t blocks() const { return ceil_div(count, block); }
  constexpr std::size_t bytes() const { return count * element_size; }
  constexpr std::size_t block_bytes() const { return block * element_size; }

  bool operator==(const BlockLayout&) const = default;
};

}  // namespace sparsewire
