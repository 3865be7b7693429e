// Draws and codes positions. Few are drawn one by one, by Floyd's algorithm (Bentley and Floyd,
// CACM 1987), with the bitmap itself as the set of drawn positions. If nearly all are wanted, those
// that are left out are drawn. For many, a coin is tossed for each position, and then random
// positions are changed until the number is right: sets of equal size remain equally likely. The
// parameter of the Rice code is the best one for positions that are spread evenly; clusters only
// make it shorter.
#include "compress/positions.hpp"

#include <algorithm>
#include <bit>

#include "base/types.hpp"
#include "kernels/bit_fields.hpp"
#include "kernels/kernels.hpp"
#include "kernels/loops/noise.hpp"

namespace sparsewire {
namespace {

// How many positions are coded, and with how many low bits each.
struct Rice {
  bool inverted;
  std::size_t coded;
  unsigned low_bits;

  Rice(std::size_t count, std::size_t k)
      : inverted(k > count - k), coded(std::min(k, count - k)), low_bits(0) {
    // The rule of Kiely (Selecting the Golomb parameter in Rice coding, 2004) in integers: one bit
    // more for each doubling of the mean gap, plus a half, beyond 1 / 0.4812.
    constexpr std::uint64_t kUnit = 20000;
    constexpr std::uint64_t kShare = 4812;
    const std::uint64_t gaps = kShare * (2 * std::uint64_t{count} - coded);
    for (std::uint64_t reached = kUnit * coded; low_bits < 31 && reached <= gaps; reached *= 2) {
      if (coded == 0) break;
      ++low_bits;
    }
  }
};

__extension__ using Wide = unsigned __int128;

// Uniform in [0, bound), up to an error of bound / 2^64.
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
  std::size_t set = kernels().compress.bernoulli(count, share, key, bitmap);
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

std::size_t positions_bound(std::size_t count, std::size_t k) {
  const Rice rice(count, k);
  if (rice.coded == 0) return 0;
  return ceil_div((count >> rice.low_bits) + rice.coded * (rice.low_bits + 1), std::size_t{8});
}

std::size_t encode_positions(const std::uint64_t* bitmap, std::size_t count, std::size_t k,
                             std::byte* out) {
  const Rice rice(count, k);
  if (rice.coded == 0) return 0;
  const std::uint64_t flip = rice.inverted ? ~std::uint64_t{0} : 0;
  const std::uint64_t low = (std::uint64_t{1} << rice.low_bits) - 1;
  BitWriter bits(out);
  std::size_t next = 0;
  for (std::size_t word = 0; word < bitmap_words(count); ++word) {
    std::uint64_t rest = (bitmap[word] ^ flip) & used_bits(word, count);
    for (; rest != 0; rest &= rest - 1) {
      const std::size_t position =
          word * kBitmapWordBits + static_cast<std::size_t>(std::countr_zero(rest));
      const std::size_t gap = position - next;
      bits.put_unary(gap >> rice.low_bits);
      bits.put(static_cast<std::uint32_t>(gap & low), rice.low_bits);
      next = position + 1;
    }
  }
  return static_cast<std::size_t>(bits.finish() - out);
}

const std::byte* decode_positions(const std::byte* in, const std::byte* end, std::size_t count,
                                  std::size_t k, std::uint64_t* bitmap) {
  const Rice rice(count, k);
  std::fill_n(bitmap, bitmap_words(count), std::uint64_t{0});
  BitReader bits(in, end);
  std::size_t next = 0;
  for (std::size_t i = 0; i < rice.coded; ++i) {
    const std::uint64_t quotient = bits.get_unary();
    if (bits.failed() || quotient > count >> rice.low_bits) return nullptr;
    const std::size_t position = next + ((quotient << rice.low_bits) | bits.get(rice.low_bits));
    if (position >= count) return nullptr;
    set_bit(bitmap, position);
    next = position + 1;
  }
  if (rice.inverted) invert(bitmap, count);
  return bits.finish();
}

}  // namespace sparsewire
