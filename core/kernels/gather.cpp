// gather and scatter: whole words of set bits are one memcpy, all others go bit by bit.
#include "kernels/gather.hpp"

#include <bit>
#include <cstring>

namespace sparsewire {
namespace {

// Calls visit(packed, element, length) for every set bit, or for 64 at a time.
template <typename Visit>
inline void for_each_set(std::size_t words, const std::uint64_t* bitmap, Visit&& visit) {
  std::size_t packed = 0;
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t bits = bitmap[word];
    if (bits == ~std::uint64_t{0}) {
      visit(packed, word * 64, std::size_t{64});
      packed += 64;
      continue;
    }
    for (; bits != 0; bits &= bits - 1, ++packed) {
      visit(packed, word * 64 + static_cast<std::size_t>(std::countr_zero(bits)), std::size_t{1});
    }
  }
}

template <std::size_t size>
void gather_sized(std::byte* dst, const std::byte* src, std::size_t words,
                  const std::uint64_t* bitmap) {
  for_each_set(words, bitmap, [=](std::size_t packed, std::size_t element, std::size_t length) {
    if (length == 1) {
      std::memcpy(dst + packed * size, src + element * size, size);
    } else {
      std::memcpy(dst + packed * size, src + element * size, 64 * size);
    }
  });
}

template <std::size_t size>
void scatter_sized(std::byte* dst, const std::byte* src, std::size_t words,
                   const std::uint64_t* bitmap) {
  for_each_set(words, bitmap, [=](std::size_t packed, std::size_t element, std::size_t length) {
    if (length == 1) {
      std::memcpy(dst + element * size, src + packed * size, size);
    } else {
      std::memcpy(dst + element * size, src + packed * size, 64 * size);
    }
  });
}

}  // namespace

void gather(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
            const std::uint64_t* bitmap) {
  if (element_size == 2) return gather_sized<2>(dst, src, words, bitmap);
  if (element_size == 4) return gather_sized<4>(dst, src, words, bitmap);
  gather_sized<8>(dst, src, words, bitmap);
}

void scatter(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
             const std::uint64_t* bitmap) {
  if (element_size == 2) return scatter_sized<2>(dst, src, words, bitmap);
  if (element_size == 4) return scatter_sized<4>(dst, src, words, bitmap);
  scatter_sized<8>(dst, src, words, bitmap);
}

}  // namespace sparsewire
