// Word by word of the bitmaps, and piece by piece of dense vectors, while these are in the cache.
#include "kernels/compress/marked.hpp"

#include <algorithm>
#include <vector>

#include "kernels/compress/bitmaps.hpp"

namespace sparsewire {
namespace {

constexpr std::size_t kPieceWords = 64;
constexpr std::size_t kPiece = kPieceWords * kBitmapWordBits;

// Takes the elements of a vector word by word.
template <typename T>
class WordReader {
 public:
  explicit WordReader(Marked<T> vector) : next_(vector) {}

  // Calls visit(bit, value) for the set bits of the next word.
  template <typename Visit>
  void word(Visit visit) {
    for_each_set(next_.bitmap, kBitmapWordBits,
                 [&](std::size_t bit) { visit(bit, *next_.values++); });
    ++next_.bitmap;
  }

 private:
  Marked<T> next_;
};

}  // namespace

template <typename T>
std::size_t mean_of_marked(std::span<const Marked<T>> vectors, std::size_t count,
                           std::uint64_t* bitmap, T* means) {
  std::vector<WordReader<T>> readers(vectors.begin(), vectors.end());
  const T divisor = static_cast<T>(vectors.size());
  T* next = means;
  for (std::size_t word = 0; word < bitmap_words(count); ++word) {
    std::uint64_t any = 0;
    for (const Marked<T>& vector : vectors) any |= vector.bitmap[word];
    bitmap[word] = any;
    T sums[kBitmapWordBits];
    for_each_set(&any, kBitmapWordBits, [&](std::size_t bit) { sums[bit] = 0; });
    for (WordReader<T>& reader : readers) {
      reader.word([&](std::size_t bit, T value) { sums[bit] += value; });
    }
    for_each_set(&any, kBitmapWordBits, [&](std::size_t bit) { *next++ = sums[bit] / divisor; });
  }
  return static_cast<std::size_t>(next - means);
}

template <typename T>
void feed_back(T* gradient, T* residual, std::size_t count, Marked<T> own, Marked<T> mean) {
  WordReader<T> sent(own), sums(mean);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t end = std::min(begin + kPiece, count);
    std::copy(gradient + begin, gradient + end, residual + begin);
    std::fill(gradient + begin, gradient + end, T{0});
    for (std::size_t first = begin; first < end; first += kBitmapWordBits) {
      sent.word([&](std::size_t bit, T value) { residual[first + bit] -= value; });
      sums.word([&](std::size_t bit, T value) { gradient[first + bit] = value; });
    }
  }
}

template std::size_t mean_of_marked(std::span<const Marked<float>>, std::size_t, std::uint64_t*,
                                    float*);
template std::size_t mean_of_marked(std::span<const Marked<double>>, std::size_t, std::uint64_t*,
                                    double*);
template void feed_back(float*, float*, std::size_t, Marked<float>, Marked<float>);
template void feed_back(double*, double*, std::size_t, Marked<double>, Marked<double>);

}  // namespace sparsewire
