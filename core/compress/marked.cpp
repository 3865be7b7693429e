// Finds the largest values, and adds up vectors of few. The smallest magnitude to keep of a vector
// is found digit by digit, from histograms of the magnitudes that agree with it so far, without
// memory for candidates. Then one pass marks the values that reach it. In a span, one pass finds a
// magnitude that a few more than k values reach, and only these are looked at. Marked values are
// added word by word of the bitmaps, and fed back piece by piece of dense vectors, while these are
// in the cache.
#include "compress/marked.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
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

// So few values are sorted instead, which costs less than histograms.
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
BitsOf<T> kth_of_few(const T* values, std::size_t count, std::size_t k) {
  std::vector<BitsOf<T>> sizes(count);
  std::transform(values, values + count, sizes.begin(), size_of<T>);
  const auto kth = sizes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sizes.begin(), kth, sizes.end(), std::greater<>());
  return *kth;
}

// The k-th largest magnitude, k from 1 on, as a bit pattern.
template <typename T>
BitsOf<T> kth_largest(const T* values, std::size_t count, std::size_t k) {
  if (count <= kFew) return kth_of_few(values, count, k);
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

// A magnitude and its complemented position, so that of equal magnitudes the first is the largest.
template <typename T>
using Candidate = std::pair<BitsOf<T>, std::size_t>;

// Leaves the k largest candidates, or fewer, in the order of their positions.
template <typename T>
void keep_largest(std::vector<Candidate<T>>& found, std::size_t k) {
  if (found.size() <= k) return;
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(found.begin(), end, found.end(), std::greater<>());
  std::sort(found.begin(), end, [](const auto& a, const auto& b) { return a.second > b.second; });
  found.resize(k);
}

// Finds the largest values of one span after another.
template <typename T>
class SpanSearch {
 public:
  SpanSearch(std::size_t span, std::size_t k) : k_(k), reached_(bitmap_words(span)) {}

  // The k largest that are not zero, or fewer, in the order of their positions.
  const std::vector<Candidate<T>>& search(const T* values, std::size_t count) {
    const T bound = loops_.reached_by_some(values, count, k_);
    loops_.reaching(values, count, bound, reached_.data());
    found_.clear();
    for_each_set(reached_.data(), count,
                 [&](std::size_t i) { found_.emplace_back(size_of(values[i]), ~i); });
    keep_largest<T>(found_, k_);
    return found_;
  }

 private:
  const VectorKernels<T>& loops_ = kernels().compress.of<T>();
  std::size_t k_;
  std::vector<std::uint64_t> reached_;
  std::vector<Candidate<T>> found_;
};

// Elements that are worked on while they are in the cache.
constexpr std::size_t kPiece = 4096;

// Calls visit(block) for the set bits of one word.
template <typename Visit>
void for_each_block(const std::uint64_t* bitmap, std::size_t word, Visit visit) {
  for_each_set(bitmap + word, kBitmapWordBits,
               [&](std::size_t bit) { visit(word * kBitmapWordBits + bit); });
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
  SpanSearch<T> of_span(std::min(spans.span, spans.count), spans.k);
  T* next = kept;
  for (std::size_t first = 0; first < spans.count; first += spans.span) {
    const std::size_t length = std::min(spans.span, spans.count - first);
    for (std::size_t i = first; added && i < first + length; ++i) values[i] += added[i];
    for (const auto& [size, complement] : of_span.search(values + first, length)) {
      const std::size_t position = first + ~complement;
      set_bit(bitmap, position);
      *next++ = values[position];
    }
  }
  return static_cast<std::size_t>(next - kept);
}

template <typename T>
void add_and_measure(T* values, const T* added, const Cut& cut, T* norms) {
  const VectorKernels<T>& loops = kernels().compress.of<T>();
  const std::size_t blocks = std::max<std::size_t>(1, kPiece / cut.block);
  const std::size_t piece = blocks * cut.block;
  for (std::size_t begin = 0; begin < cut.count; begin += piece, norms += blocks) {
    const std::size_t end = std::min(begin + piece, cut.count);
    for (std::size_t i = begin; i < end; ++i) values[i] += added[i];
    loops.norms(values + begin, end - begin, cut.block, 2, norms);
  }
}

template <typename T>
std::size_t mean_of_marked(std::span<const Marked<T>> vectors, const Cut& cut,
                           std::uint64_t* bitmap, T* means) {
  std::vector<Marked<T>> rest(vectors.begin(), vectors.end());
  const T divisor = static_cast<T>(vectors.size());
  T* next = means;
  for (std::size_t word = 0; word < bitmap_words(cut.blocks()); ++word) {
    std::uint64_t any = 0;
    for (const Marked<T>& vector : vectors) any |= vector.bitmap[word];
    bitmap[word] = any;
    for_each_block(bitmap, word, [&](std::size_t block) {
      const std::size_t length = cut.length(block);
      std::fill_n(next, length, T{0});
      for (Marked<T>& vector : rest) {
        if (!test_bit(vector.bitmap, block)) continue;
        for (std::size_t i = 0; i < length; ++i) next[i] += vector.values[i];
        vector.values += length;
      }
      for (std::size_t i = 0; i < length; ++i) next[i] /= divisor;
      next += length;
    });
  }
  return static_cast<std::size_t>(next - means);
}

template <typename T>
void feed_back(T* gradient, T* residual, const Cut& cut, Marked<T> own, Marked<T> mean) {
  const std::size_t words = bitmap_words(cut.blocks());
  const std::size_t at_once =
      std::max<std::size_t>(1, kPiece / kBitmapWordBits / cut.block);  // words of the bitmaps
  const auto start = [&](std::size_t word) {
    return std::min(word * kBitmapWordBits * cut.block, cut.count);
  };
  for (std::size_t word = 0; word < words; word += at_once) {
    const std::size_t last = std::min(word + at_once, words);
    std::copy(gradient + start(word), gradient + start(last), residual + start(word));
    std::fill(gradient + start(word), gradient + start(last), T{0});
    for (std::size_t at = word; at < last; ++at) {
      for_each_block(own.bitmap, at, [&](std::size_t block) {
        T* const out = residual + block * cut.block;
        for (std::size_t i = 0; i < cut.length(block); ++i) out[i] -= *own.values++;
      });
      for_each_block(mean.bitmap, at, [&](std::size_t block) {
        std::copy_n(mean.values, cut.length(block), gradient + block * cut.block);
        mean.values += cut.length(block);
      });
    }
  }
}

template void top_k(const float*, std::size_t, std::size_t, std::uint64_t*);
template void top_k(const double*, std::size_t, std::size_t, std::uint64_t*);
template std::size_t top_k_of_spans(const Spans&, float*, const float*, std::uint64_t*, float*);
template std::size_t top_k_of_spans(const Spans&, double*, const double*, std::uint64_t*, double*);
template void add_and_measure(float*, const float*, const Cut&, float*);
template void add_and_measure(double*, const double*, const Cut&, double*);
template std::size_t mean_of_marked(std::span<const Marked<float>>, const Cut&, std::uint64_t*,
                                    float*);
template std::size_t mean_of_marked(std::span<const Marked<double>>, const Cut&, std::uint64_t*,
                                    double*);
template void feed_back(float*, float*, const Cut&, Marked<float>, Marked<float>);
template void feed_back(double*, double*, const Cut&, Marked<double>, Marked<double>);

}  // namespace sparsewire
