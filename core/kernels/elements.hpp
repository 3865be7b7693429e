// Element types as the kernels see them: how they lie in memory and which type they accumulate in.
//
// In this header and those that build on it, every function has internal linkage and uses nothing
// from the standard library, because each level compiles its own copy: the linker must never give
// one level's code to another.
#pragma once

#include "base/types.hpp"

namespace sparsewire {
namespace {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

// A value at any address; the attributes let the compiler use unaligned vector accesses.
template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

template <typename T>
struct AccumulatorOf {
  using Type = T;
};
template <>
struct AccumulatorOf<Half> {
  using Type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using Type = float;
};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::Type;

template <typename T>
inline constexpr bool kIsInteger = __is_same(T, std::int32_t) || __is_same(T, std::int64_t);

// Calls visit(T{}) with the type that `dtype` names.
template <typename Visit>
inline void with_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::float16:
      return visit(Half{});
    case DType::bfloat16:
      return visit(BFloat16{});
    case DType::int32:
      return visit(std::int32_t{});
    case DType::int64:
      return visit(std::int64_t{});
  }
}

}  // namespace
}  // namespace sparsewire
