// Adds up vectors of few values. Marked values are added word by word of the bitmaps, and fed back
// piece by piece of dense vectors, while these are in the cache.
#include "compress/marked.hpp"

#include <algorithm>
#include <vector>

#include "compress/positions.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

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
void add_marked(T* total, const Cut& cut, Marked<T> added) {
  for_each_set(added.bitmap, cut.blocks(), [&](std::size_t block) {
    T* const out = total + block * cut.block;
    for (std::size_t i = 0; i < cut.length(block); ++i) out[i] += *added.values++;
  });
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

template void add_and_measure(float*, const float*, const Cut&, float*);
template void add_and_measure(double*, const double*, const Cut&, double*);
template std::size_t mean_of_marked(std::span<const Marked<float>>, const Cut&, std::uint64_t*,
                                    float*);
template std::size_t mean_of_marked(std::span<const Marked<double>>, const Cut&, std::uint64_t*,
                                    double*);
template void add_marked(float*, const Cut&, Marked<float>);
template void add_marked(double*, const Cut&, Marked<double>);
template void feed_back(float*, float*, const Cut&, Marked<float>, Marked<float>);
template void feed_back(double*, double*, const Cut&, Marked<double>, Marked<double>);

}  // namespace sparsewire
