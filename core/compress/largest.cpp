// Finds the largest values. The smallest magnitude to keep of a vector is found digit by digit,
// from histograms of the magnitudes that agree with it so far, without memory for candidates. Then
// one pass marks the values that reach it. In a span, one pass finds a magnitude that a few more
// than k values reach, and only these are looked at.
#include "compress/largest.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "compress/positions.hpp"
#include "kernels/kernels.hpp"
#include "kernels/loops/floats.hpp"

namespace sparsewire {
namespace {

// Magnitudes as integers, which are ordered like the numbers.
template <typename T>
BitsOf<T> size_of(T value) {
  return bits_of(value) & kMagnitudeMask<T>;
}

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

// So few values are partitioned, and more of them gone over bit by bit: that costs less than
// histograms while they stay in a cache.
constexpr std::size_t kFewest = 32;
constexpr std::size_t kFew = 4096;

using Histogram = std::array<std::uint64_t, kDigits>;

// Counts the first digits of all values, in several tables, so that equal neighbours do not wait
// for each other.
template <typename T>
Histogram count_first_digits(const T* values, std::size_t count) {
  constexpr unsigned kShift = kSignAt<T> - kDigitBits;
  constexpr std::size_t kTables = 4;
  std::array<Histogram, kTables> tables{};
  std::size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (std::size_t k = 0; k < kTables; ++k) ++tables[k][size_of(values[i + k]) >> kShift];
  }
  for (; i < count; ++i) ++tables[0][size_of(values[i]) >> kShift];
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    for (std::size_t k = 1; k < kTables; ++k) tables[0][digit] += tables[k][digit];
  }
  return tables[0];
}

// Counts the digits at `shift` of the values that agree with `bound` above them: mostly few, so
// that groups without such values are skipped.
template <typename T>
Histogram count_digits(const T* values, std::size_t count, BitsOf<T> bound, unsigned above,
                       unsigned shift) {
  constexpr std::size_t kGroup = 64;
  const BitsOf<T> mask = (BitsOf<T>{1} << (above - shift)) - 1;
  const BitsOf<T> wanted = bound >> above;
  Histogram histogram{};
  for (std::size_t first = 0; first < count; first += kGroup) {
    const std::size_t last = std::min(first + kGroup, count);
    BitsOf<T> agree = 0;
    for (std::size_t i = first; i < last; ++i) {
      agree |= size_of(values[i]) >> above == wanted ? 1 : 0;
    }
    if (agree == 0) continue;
    for (std::size_t i = first; i < last; ++i) {
      const BitsOf<T> bits = size_of(values[i]);
      if (bits >> above == wanted) ++histogram[(bits >> shift) & mask];
    }
  }
  return histogram;
}

// The digit of the k-th largest value, k from 1 on. Subtracts from k the values with larger digits.
std::size_t find_digit(const Histogram& histogram, std::size_t& k) {
  std::size_t digit = kDigits - 1;
  for (; histogram[digit] < k; --digit) k -= histogram[digit];
  return digit;
}

template <typename T>
BitsOf<T> kth_of_fewest(const T* values, std::size_t count, std::size_t k) {
  std::array<BitsOf<T>, kFewest> sizes;
  BitsOf<T>* const end = std::transform(values, values + count, sizes.data(), size_of<T>);
  std::nth_element(sizes.data(), sizes.data() + (k - 1), end, std::greater<>());
  return sizes[k - 1];
}

// The k-th largest magnitude, k from 1 on, as a bit pattern.
template <typename T>
BitsOf<T> kth_largest(const T* values, std::size_t count, std::size_t k) {
  if (count <= kFewest) return kth_of_fewest(values, count, k);
  if (count <= kFew) return size_of(kernels().compress.of<T>().kth_largest(values, count, k));
  BitsOf<T> bound = 0;
  for (unsigned above = kSignAt<T>; above != 0;) {
    const unsigned shift = above - std::min(above, kDigitBits);
    const Histogram histogram = above == kSignAt<T>
                                    ? count_first_digits(values, count)
                                    : count_digits(values, count, bound, above, shift);
    bound |= static_cast<BitsOf<T>>(find_digit(histogram, k)) << shift;
    above = shift;
  }
  return bound;
}

// Clears `surplus` set bits whose value has just this magnitude, from the end on.
template <typename T>
void drop_last(const T* values, std::size_t count, BitsOf<T> bound, std::size_t surplus,
               std::uint64_t* bitmap) {
  for (std::size_t i = count; surplus != 0;) {
    --i;
    if (size_of(values[i]) != bound) continue;
    clear_bit(bitmap, i);
    --surplus;
  }
}

// Clears the bits of values below this magnitude, and of the last ones that just have it, so that k
// are left.
template <typename T>
void keep_largest(const T* values, std::size_t count, BitsOf<T> bound, std::size_t k,
                  std::uint64_t* bitmap) {
  std::size_t left = 0;
  for_each_set(bitmap, count, [&](std::size_t i) {
    size_of(values[i]) < bound ? clear_bit(bitmap, i) : static_cast<void>(++left);
  });
  drop_last(values, count, bound, left - k, bitmap);
}

// Marks the largest values of one span after another.
template <typename T>
class SpanSearch {
 public:
  SpanSearch(std::size_t span, std::size_t k) : k_(k), some_(span) {}

  // Sets the bits of the k largest that are not zero, or of fewer, and clears the others; returns
  // how many.
  std::size_t mark(const T* values, std::size_t count, std::uint64_t* bitmap) {
    const T reached = loops_.reached_by_some(values, count, k_);
    const std::size_t some = loops_.reaching(values, count, reached, bitmap);
    if (some <= k_) return some;
    kernels().gather(reinterpret_cast<std::byte*>(some_.data()),
                     reinterpret_cast<const std::byte*>(values), sizeof(T), bitmap_words(count),
                     bitmap);
    keep_largest(values, count, kth_largest(some_.data(), some, k_), k_, bitmap);
    return k_;
  }

 private:
  const VectorKernels<T>& loops_ = kernels().compress.of<T>();
  std::size_t k_;
  std::vector<T> some_;
};

// Sets the bits from `first` on that are set in `bits`, of which there are `count`.
void place(const std::uint64_t* bits, std::size_t count, std::size_t first, std::uint64_t* bitmap) {
  const std::size_t shift = first % kBitmapWordBits;
  std::uint64_t* out = bitmap + first / kBitmapWordBits;
  for (std::size_t word = 0; word < bitmap_words(count); ++word, ++out) {
    out[0] |= bits[word] << shift;
    const std::uint64_t beyond = shift == 0 ? 0 : bits[word] >> (kBitmapWordBits - shift);
    if (beyond != 0) out[1] |= beyond;
  }
}

}  // namespace

template <typename T>
void top_k(const T* values, std::size_t count, std::size_t k, std::uint64_t* bitmap) {
  if (k == 0) {
    std::fill_n(bitmap, bitmap_words(count), std::uint64_t{0});
    return;
  }
  const BitsOf<T> bound = kth_largest(values, count, k);
  const std::size_t marked =
      kernels().compress.of<T>().reaching(values, count, of_bits<T>(bound), bitmap);
  drop_last(values, count, bound, marked - k, bitmap);
}

template <typename T>
std::size_t top_k_of_spans(const Spans& spans, T* values, const T* added, std::uint64_t* bitmap,
                           T* kept) {
  std::fill_n(bitmap, bitmap_words(spans.count), std::uint64_t{0});
  const std::size_t longest = std::min(spans.span, spans.count);
  SpanSearch<T> of_span(longest, spans.k);
  std::vector<std::uint64_t> marks(bitmap_words(longest));
  T* next = kept;
  for (std::size_t first = 0; first < spans.count; first += spans.span) {
    const std::size_t length = std::min(spans.span, spans.count - first);
    T* const values_of_span = values + first;
    if (added)
      std::transform(added + first, added + first + length, values_of_span, values_of_span,
                     std::plus<>());
    const std::size_t marked = of_span.mark(values_of_span, length, marks.data());
    kernels().gather(reinterpret_cast<std::byte*>(next),
                     reinterpret_cast<const std::byte*>(values_of_span), sizeof(T),
                     bitmap_words(length), marks.data());
    place(marks.data(), length, first, bitmap);
    next += marked;
  }
  return static_cast<std::size_t>(next - kept);
}

template void top_k(const float*, std::size_t, std::size_t, std::uint64_t*);
template void top_k(const double*, std::size_t, std::size_t, std::uint64_t*);
template std::size_t top_k_of_spans(const Spans&, float*, const float*, std::uint64_t*, float*);
template std::size_t top_k_of_spans(const Spans&, double*, const double*, std::uint64_t*, double*);

}  // namespace sparsewire
