// The vocabulary of every layer: element types, reductions, ranks, and small integer helpers.
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

}  // namespace sparsewire
