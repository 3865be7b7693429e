// The smallest magnitude to keep is found digit by digit, from histograms of those that agree with
// it so far, without memory for candidates; then one pass marks what reaches it.
#include "kernels/compress/top_k.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <type_traits>
#include <vector>

#include "kernels/compress/bitmaps.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

// Magnitudes as integers, which are ordered like the numbers.
template <typename T>
using Word = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;

template <typename T>
constexpr unsigned kMagnitudeBits = 8 * sizeof(T) - 1;

template <typename T>
Word<T> magnitude(T value) {
  return std::bit_cast<Word<T>>(value) & ((Word<T>{1} << kMagnitudeBits<T>)-1);
}

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

// So few values are sorted instead, which costs less than to go through histograms.
constexpr std::size_t kFew = 4096;

using Histogram = std::array<std::uint64_t, kDigits>;

// Counts the first digits of all values, in several tables, so that equal neighbours do not wait
// for each other.
template <typename T>
Histogram count_first_digits(const T* values, std::size_t count) {
  constexpr unsigned kShift = kMagnitudeBits<T> - kDigitBits;
  constexpr std::size_t kTables = 4;
  std::array<Histogram, kTables> tables{};
  std::size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (std::size_t k = 0; k < kTables; ++k) ++tables[k][magnitude(values[i + k]) >> kShift];
  }
  for (; i < count; ++i) ++tables[0][magnitude(values[i]) >> kShift];
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    for (std::size_t k = 1; k < kTables; ++k) tables[0][digit] += tables[k][digit];
  }
  return tables[0];
}

// Counts the digits at `shift` of the values that agree with `bound` above them: mostly few, so
// that groups without any are passed over.
template <typename T>
Histogram count_digits(const T* values, std::size_t count, Word<T> bound, unsigned above,
                       unsigned shift) {
  constexpr std::size_t kGroup = 64;
  const Word<T> mask = (Word<T>{1} << (above - shift)) - 1;
  const Word<T> wanted = bound >> above;
  Histogram histogram{};
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t last = std::min(first + kGroup, count);
    Word<T> agree = 0;
    for (std::size_t i = first; i < last; ++i) {
      agree |= magnitude(values[i]) >> above == wanted ? 1 : 0;
    }
    if (agree == 0) continue;
    for (std::size_t i = first; i < last; ++i) {
      const Word<T> bits = magnitude(values[i]);
      if (bits >> above == wanted) ++histogram[(bits >> shift) & mask];
    }
  }
  return histogram;
}

// The digit of the k-th largest, from 1 on; takes those above it off k.
std::size_t find_digit(const Histogram& histogram, std::size_t& k) {
  std::size_t digit = kDigits - 1;
  for (; histogram[digit] < k; --digit) k -= histogram[digit];
  return digit;
}

template <typename T>
Word<T> kth_of_few(const T* values, std::size_t count, std::size_t k) {
  std::vector<Word<T>> sizes(count);
  std::transform(values, values + count, sizes.begin(), magnitude<T>);
  const auto kth = sizes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sizes.begin(), kth, sizes.end(), std::greater<>());
  return *kth;
}

// The k-th largest magnitude, k from 1 on, as a bit pattern.
template <typename T>
Word<T> kth_largest(const T* values, std::size_t count, std::size_t k) {
  if (count <= kFew) return kth_of_few(values, count, k);
  Word<T> bound = 0;
  for (unsigned above = kMagnitudeBits<T>; above != 0;) {
    const unsigned shift = above - std::min(above, kDigitBits);
    const Histogram histogram = above == kMagnitudeBits<T>
                                    ? count_first_digits(values, count)
                                    : count_digits(values, count, bound, above, shift);
    bound |= static_cast<Word<T>>(find_digit(histogram, k)) << shift;
    above = shift;
  }
  return bound;
}

// Clears so many of the set bits whose value has just this magnitude, from the end on.
template <typename T>
void drop_last(const T* values, std::size_t count, Word<T> bound, std::size_t surplus,
               std::uint64_t* bitmap) {
  for (std::size_t i = count; surplus != 0;) {
    --i;
    if (magnitude(values[i]) != bound) continue;
    clear_bit(bitmap, i);
    --surplus;
  }
}

}  // namespace

template <typename T>
void top_k(const T* values, std::size_t count, std::size_t k, std::uint64_t* bitmap) {
  if (k == 0) {
    std::fill_n(bitmap, bitmap_words(count), std::uint64_t{0});
    return;
  }
  const Word<T> bound = kth_largest(values, count, k);
  const std::size_t marked =
      kernels().compress.of<T>().reaching(values, count, std::bit_cast<T>(bound), bitmap);
  drop_last(values, count, bound, marked - k, bitmap);
}

template void top_k(const float*, std::size_t, std::size_t, std::uint64_t*);
template void top_k(const double*, std::size_t, std::size_t, std::uint64_t*);

}  // namespace sparsewire
