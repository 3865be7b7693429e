// Floyd's algorithm (Bentley and Floyd, CACM 1987), with the bitmap itself as the set of what is
// drawn; where more than half is to be drawn, what is left out is.
#include "kernels/compress/rand_k.hpp"

#include <algorithm>

#include "kernels/compress/bitmaps.hpp"
#include "kernels/noise.hpp"

namespace sparsewire {
namespace {

__extension__ using Wide = unsigned __int128;

// Uniform in [0, bound), but for a part of bound / 2^64.
std::uint64_t draw(std::uint64_t key, std::uint64_t number, std::uint64_t bound) {
  constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;
  return static_cast<std::uint64_t>((Wide{mix(mix(key + kWeyl) + number * kWeyl)} * bound) >> 64);
}

}  // namespace

void rand_k(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap) {
  std::fill_n(bitmap, bitmap_words(count), 0);
  const std::size_t drawn = std::min(k, count - k);
  for (std::size_t last = count - drawn; last < count; ++last) {
    const std::size_t position = draw(key, last, std::uint64_t{last} + 1);
    set_bit(bitmap, test_bit(bitmap, position) ? last : position);
  }
  if (drawn != k) invert(bitmap, count);
}

}  // namespace sparsewire
