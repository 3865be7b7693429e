// The smallest magnitude to keep is found digit by digit, from histograms of those that agree with
// it so far, without memory for candidates; then one pass marks what reaches it.
#include "kernels/compress/top_k.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/compress/bitmaps.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr unsigned kMagnitudeBits = 31;
constexpr unsigned kDigits = 2048;
constexpr unsigned kShifts[] = {20, 10, 0};  // of digits of 11, 10 and 10 bits

using Histogram = std::array<std::uint64_t, kDigits>;

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

// Counts the first digits of all values, in several tables, so that equal neighbours do not wait
// for each other.
Histogram count_first_digits(const float* values, std::size_t count) {
  constexpr std::size_t kTables = 4;
  std::array<Histogram, kTables> tables{};
  std::size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (std::size_t k = 0; k < kTables; ++k) ++tables[k][magnitude(values[i + k]) >> kShifts[0]];
  }
  for (; i < count; ++i) ++tables[0][magnitude(values[i]) >> kShifts[0]];
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    for (std::size_t k = 1; k < kTables; ++k) tables[0][digit] += tables[k][digit];
  }
  return tables[0];
}

// Counts the digits at `shift` of the values that agree with `bound` above them: mostly few, so
// that groups without any are passed over.
Histogram count_digits(const float* values, std::size_t count, std::uint32_t bound, unsigned above,
                       unsigned shift) {
  constexpr std::size_t kGroup = 64;
  const std::uint32_t mask = (std::uint32_t{1} << (above - shift)) - 1;
  const std::uint32_t wanted = bound >> above;
  Histogram histogram{};
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t last = std::min(first + kGroup, count);
    std::uint32_t agree = 0;
    for (std::size_t i = first; i < last; ++i) {
      agree |= magnitude(values[i]) >> above == wanted ? 1u : 0u;
    }
    if (agree == 0) continue;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint32_t bits = magnitude(values[i]);
      if (bits >> above == wanted) ++histogram[(bits >> shift) & mask];
    }
  }
  return histogram;
}

// The digit of the k-th largest, from 1 on; takes those above it off k.
std::uint32_t find_digit(const Histogram& histogram, std::size_t& k) {
  std::uint32_t digit = kDigits - 1;
  for (; histogram[digit] < k; --digit) k -= histogram[digit];
  return digit;
}

// The k-th largest magnitude, k from 1 on, as a bit pattern.
std::uint32_t kth_largest(const float* values, std::size_t count, std::size_t k) {
  std::uint32_t bound = 0;
  unsigned above = kMagnitudeBits;
  for (const unsigned shift : kShifts) {
    const Histogram histogram = above == kMagnitudeBits
                                    ? count_first_digits(values, count)
                                    : count_digits(values, count, bound, above, shift);
    bound |= find_digit(histogram, k) << shift;
    above = shift;
  }
  return bound;
}

// Clears so many of the set bits whose value has just this magnitude, from the end on.
void drop_last(const float* values, std::size_t count, std::uint32_t bound, std::size_t surplus,
               std::uint64_t* bitmap) {
  for (std::size_t i = count; surplus != 0;) {
    --i;
    if (magnitude(values[i]) != bound) continue;
    clear_bit(bitmap, i);
    --surplus;
  }
}

}  // namespace

void top_k(const float* values, std::size_t count, std::size_t k, std::uint64_t* bitmap) {
  if (k == 0) {
    std::fill_n(bitmap, bitmap_words(count), std::uint64_t{0});
    return;
  }
  const std::uint32_t bound = kth_largest(values, count, k);
  const std::size_t marked =
      kernels().compress.reaching(values, count, std::bit_cast<float>(bound), bitmap);
  drop_last(values, count, bound, marked - k, bitmap);
}

}  // namespace sparsewire
