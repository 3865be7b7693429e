// start, add and finish: one plain loop per accumulator type and operation, for the vectoriser. The
// half types pass through a tile of float32 that stays in the first-level cache.
#pragma once

#include "kernels/loops/elements.hpp"

// Input and output are disjoint or the same array: no iteration reads what an earlier one wrote.
#if defined(__clang__)
#define SPARSEWIRE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define SPARSEWIRE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace sparsewire {
namespace {

inline constexpr std::size_t kTile = 512;

// Calls visit(first, length) for tiles that together cover [0, count).
template <typename Visit>
inline void for_each_tile(std::size_t count, Visit visit) {
  for (std::size_t first = 0; first < count; first += kTile) {
    visit(first, count - first < kTile ? count - first : kTile);
  }
}

template <typename T>
inline constexpr bool kConverts = !__is_same(T, Accumulator<T>);

// out[i] = f(in[i])
template <typename A, typename F>
inline void transform(std::byte* out, const std::byte* in, std::size_t count, F f) {
  auto* const to = reinterpret_cast<Unaligned<A>*>(out);
  const auto* const source = reinterpret_cast<const Unaligned<A>*>(in);
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i].value = f(source[i].value);
}

// acc[i] = f(acc[i], x[i])
template <typename A, typename F>
inline void combine(std::byte* acc, const std::byte* x, std::size_t count, F f) {
  auto* const sums = reinterpret_cast<Unaligned<A>*>(acc);
  const auto* const source = reinterpret_cast<const Unaligned<A>*>(x);
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    sums[i].value = f(sums[i].value, source[i].value);
  }
}

// Without this the compiler may swap the operands, and so change which of two NaN comes out.
template <typename A>
inline A first_nan_or(A acc, A result) {
  return acc != acc ? acc : result;
}

template <typename A>
inline A plus(A acc, A x) {
  if constexpr (kIsInteger<A>) {
    A result;
    __builtin_add_overflow(acc, x, &result);
    return result;
  } else {
    return first_nan_or(acc, acc + x);
  }
}

template <typename A>
inline A times(A acc, A x) {
  if constexpr (kIsInteger<A>) {
    A result;
    __builtin_mul_overflow(acc, x, &result);
    return result;
  } else {
    return first_nan_or(acc, acc * x);
  }
}

template <typename A>
inline A lesser(A acc, A x) {
  return (x < acc) | (x != x) ? x : acc;
}

template <typename A>
inline A greater(A acc, A x) {
  return (x > acc) | (x != x) ? x : acc;
}

template <typename A>
inline void start_with(std::byte* acc, const std::byte* x, std::size_t count, ReduceOp op) {
  if (skips_zeros(op)) {
    transform<A>(acc, x, count, [](A value) { return A{0} + value; });
  } else {
    transform<A>(acc, x, count, [](A value) { return value; });
  }
}

template <typename A>
inline void add_with(std::byte* acc, const std::byte* x, std::size_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return combine<A>(acc, x, count, [](A a, A b) { return plus(a, b); });
    case ReduceOp::min:
      return combine<A>(acc, x, count, [](A a, A b) { return lesser(a, b); });
    case ReduceOp::max:
      return combine<A>(acc, x, count, [](A a, A b) { return greater(a, b); });
    case ReduceOp::product:
      return combine<A>(acc, x, count, [](A a, A b) { return times(a, b); });
  }
}

template <typename A>
inline void finish_with(std::byte* out, const std::byte* acc, std::size_t count, ReduceOp op,
                        std::int32_t world_size) {
  if (op == ReduceOp::avg) {
    const A divisor = static_cast<A>(world_size);
    transform<A>(out, acc, count, [=](A value) { return value / divisor; });
  } else {
    transform<A>(out, acc, count, [](A value) { return value; });
  }
}

// Calls consume(A{}, acc, values, length) for accumulators of type A and `x` in that type.
template <typename Consume>
inline void for_each_widened(std::byte* acc, const std::byte* x, std::size_t count, DType dtype,
                             Consume consume) {
  with_type(dtype, [=]<typename T>(T) {
    using A = Accumulator<T>;
    if constexpr (kConverts<T>) {
      for_each_tile(count, [=](std::size_t first, std::size_t length) {
        float tile[kTile];
        widen_all<T>(tile, x + first * sizeof(T), length);
        consume(A{}, acc + first * sizeof(A), reinterpret_cast<const std::byte*>(tile), length);
      });
    } else {
      consume(A{}, acc, x, count);
    }
  });
}

void start(std::byte* acc, const std::byte* x, std::size_t count, DType dtype, ReduceOp op) {
  for_each_widened(acc, x, count, dtype,
                   [=]<typename A>(A, std::byte* sums, const std::byte* values, std::size_t n) {
                     start_with<A>(sums, values, n, op);
                   });
}

void add(std::byte* acc, const std::byte* x, std::size_t count, DType dtype, ReduceOp op) {
  for_each_widened(acc, x, count, dtype,
                   [=]<typename A>(A, std::byte* sums, const std::byte* values, std::size_t n) {
                     add_with<A>(sums, values, n, op);
                   });
}

void finish(std::byte* out, const std::byte* acc, std::size_t count, DType dtype, ReduceOp op,
            std::int32_t world_size) {
  with_type(dtype, [=]<typename T>(T) {
    using A = Accumulator<T>;
    if constexpr (kConverts<T>) {
      for_each_tile(count, [=](std::size_t first, std::size_t length) {
        A tile[kTile];
        finish_with<A>(reinterpret_cast<std::byte*>(tile), acc + first * sizeof(A), length, op,
                       world_size);
        narrow_all<T>(out + first * sizeof(T), tile, length);
      });
    } else {
      finish_with<A>(out, acc, count, op, world_size);
    }
  });
}

}  // namespace
}  // namespace sparsewire
