// Few positions are drawn one by one, by Floyd's algorithm (Bentley and Floyd, CACM 1987) with the
// bitmap itself as the set of what is drawn; of nearly all, those that are left out are. For many,
// a coin is tossed for each position, and then as many are changed as it takes: sets of equal size
// remain equally likely.
#include "kernels/compress/rand_k.hpp"

#include <algorithm>

#include "kernels/compress/bitmaps.hpp"
#include "kernels/kernels.hpp"
#include "kernels/noise.hpp"

namespace sparsewire {
namespace {

__extension__ using Wide = unsigned __int128;

// Uniform in [0, bound), but for a part of bound / 2^64.
std::uint64_t draw(std::uint64_t key, std::uint64_t number, std::uint64_t bound) {
  constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;
  return static_cast<std::uint64_t>((Wide{mix(mix(key + kWeyl) + number * kWeyl)} * bound) >> 64);
}

constexpr std::size_t kFewPositions = 4096;
constexpr std::size_t kFewShare = 16;

void draw_each(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap) {
  std::fill_n(bitmap, bitmap_words(count), 0);
  const std::size_t drawn = std::min(k, count - k);
  for (std::size_t last = count - drawn; last < count; ++last) {
    const std::size_t position = draw(key, last, std::uint64_t{last} + 1);
    set_bit(bitmap, test_bit(bitmap, position) ? last : position);
  }
  if (drawn != k) invert(bitmap, count);
}

void toss_coins(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap) {
  const double share = static_cast<double>(k) / static_cast<double>(count);
  std::size_t set = kernels().compress.bernoulli(count, share, {key, 0}, bitmap);
  for (std::uint64_t number = 0; set != k; ++number) {
    const std::size_t position = draw(key, number, count);
    const bool is_set = test_bit(bitmap, position);
    if (is_set == (set < k)) continue;
    is_set ? clear_bit(bitmap, position) : set_bit(bitmap, position);
    is_set ? --set : ++set;
  }
}

}  // namespace

void rand_k(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap) {
  const bool are_few = count < kFewPositions || std::min(k, count - k) < count / kFewShare;
  (are_few ? draw_each : toss_coins)(count, k, key, bitmap);
}

}  // namespace sparsewire
