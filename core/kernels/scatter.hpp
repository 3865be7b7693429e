// add_at: adds packed values to the elements that a bitmap names.
#pragma once

#include "kernels/accumulate.hpp"

namespace sparsewire {
namespace {

// The values are widened as they come, a tile at a time.
template <typename T>
void add_at_with(std::byte* acc, const std::byte* x, std::size_t words,
                 const std::uint64_t* bitmap) {
  using A = Accumulator<T>;
  auto* const target = reinterpret_cast<Unaligned<A>*>(acc);
  A tile[64];
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t bits = bitmap[word];
    if (bits == 0) continue;
    const auto count = static_cast<std::size_t>(__builtin_popcountll(bits));
    if constexpr (kConverts<T>) {
      widen_all<T>(tile, x, count);
    } else {
      __builtin_memcpy(tile, x, count * sizeof(A));
    }
    x += count * sizeof(T);
    for (std::size_t i = 0; i < count; ++i, bits &= bits - 1) {
      const std::size_t at = word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits));
      target[at].value = plus(target[at].value, tile[i]);
    }
  }
}

void add_at(std::byte* acc, const std::byte* x, std::size_t words, const std::uint64_t* bitmap,
            DType dtype) {
  with_type(dtype, [=]<typename T>(T) { add_at_with<T>(acc, x, words, bitmap); });
}

}  // namespace
}  // namespace sparsewire
