// Splits the magnitudes of a span. They are sorted, and sums of the smallest of them tell how good
// a split is: all squares together less what the means of the classes keep.
#include "compress/centroids.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/loops/floats.hpp"

namespace sparsewire {
namespace {

// Two magnitudes, and the least one that belongs to the higher.
template <typename T>
struct Split {
  T low;
  T high;
  T bound;
};

// Squares of float fit into double. Those of double fit if the largest magnitude is about one.
template <typename T>
int exponent_of(T top) {
  if constexpr (sizeof(T) == sizeof(float)) return 0;
  constexpr int kMost = std::numeric_limits<T>::max_exponent - 2;
  return top == 0 ? 0 : std::clamp(std::ilogb(top), -kMost, kMost);
}

template <typename T>
class SpanSplitter {
 public:
  explicit SpanSplitter(std::size_t span)
      : sorted_(span + 1), sums_(span + 1), longer_(span + 1), kept_(span) {}

  Split<T> split(const T* values, std::size_t count) {
    sort(values, count);
    const T top = sorted_[0];
    if (top == 0) return {};
    const std::size_t nonzero = static_cast<std::size_t>(
        std::partition_point(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(count),
                             [](T size) { return size > 0; }) -
        sorted_.begin());
    const int exponent = exponent_of(top);
    add_up(nonzero, std::ldexp(1.0, -exponent));
    const std::size_t large = best(nonzero);
    const double all = sums_[0], low = sums_[large];
    const auto mean = [=](double sum, std::size_t size) {
      const double each =
          std::ldexp(sum / static_cast<double>(std::max<std::size_t>(size, 1)), exponent);
      return each < static_cast<double>(top) ? static_cast<T>(each) : top;
    };
    return {mean(low, nonzero - large), mean(all - low, large), sorted_[large - 1]};
  }

 private:
  // The magnitudes, the largest first, and a zero behind them.
  void sort(const T* values, std::size_t count) {
    if (count <= kMaxSorted) {
      loops_.sort_magnitudes(values, count, sorted_.data());
    } else {
      std::transform(values, values + count, sorted_.begin(), magnitude<T>);
      std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(count),
                std::greater<>());
    }
    sorted_[count] = 0;
  }

  // sums_[i]: of the magnitudes from i on.
  void add_up(std::size_t count, double factor) {
    for (std::size_t i = 0; i < count; ++i) sums_[i] = static_cast<double>(sorted_[i]) * factor;
    sums_[count] = 0;
    for (std::size_t step = 1; step < count; step *= 2) {
      for (std::size_t i = 0; i < count - step; ++i) longer_[i] = sums_[i] + sums_[i + step];
      std::copy(sums_.begin() + static_cast<std::ptrdiff_t>(count - step),
                sums_.begin() + static_cast<std::ptrdiff_t>(count + 1),
                longer_.begin() + static_cast<std::ptrdiff_t>(count - step));
      std::swap(sums_, longer_);
    }
  }

  // How many magnitudes are in the class of the large ones.
  std::size_t best(std::size_t count) {
    const double all = sums_[0];
    for (std::size_t large = 1; large < count; ++large) {
      const double low = sums_[large], high = all - low;
      kept_[large - 1] = sorted_[large - 1] > sorted_[large]
                             ? high * high / static_cast<double>(large) +
                                   low * low / static_cast<double>(count - large)
                             : -1.0;
    }
    kept_[count - 1] = all * all / static_cast<double>(count);
    const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(count);
    return static_cast<std::size_t>(std::max_element(kept_.begin(), end) - kept_.begin()) + 1;
  }

  const VectorKernels<T>& loops_ = kernels().compress.of<T>();
  std::vector<T> sorted_;
  std::vector<double> sums_;
  std::vector<double> longer_;
  std::vector<double> kept_;
};

template <typename T>
std::uint8_t symbol_of(T value, T bound) {
  const std::int32_t level = value == 0 ? 0 : magnitude(value) >= bound ? 2 : 1;
  return static_cast<std::uint8_t>(kCentroidLevels + (value < 0 ? -level : level));
}

}  // namespace

template <typename T>
void take_centroids(const T* values, const Cut& cut, T* magnitudes, std::uint8_t* symbols) {
  SpanSplitter<T> splitter(std::min(cut.block, cut.count));
  for (std::size_t block = 0; block < cut.blocks(); ++block) {
    const std::size_t first = block * cut.block, length = cut.length(block);
    const Split<T> split = splitter.split(values + first, length);
    magnitudes[2 * block] = split.low;
    magnitudes[2 * block + 1] = split.high;
    for (std::size_t i = first; i < first + length; ++i) {
      symbols[i] = symbol_of(values[i], split.bound);
    }
  }
}

template <typename T>
void centroid_values(const std::uint8_t* symbols, const Cut& cut, const T* magnitudes, T* values) {
  for (std::size_t block = 0; block < cut.blocks(); ++block, magnitudes += 2) {
    const T of_symbol[] = {-magnitudes[1], -magnitudes[0], 0, magnitudes[0], magnitudes[1]};
    const std::size_t first = block * cut.block, end = first + cut.length(block);
    for (std::size_t i = first; i < end; ++i) values[i] = of_symbol[symbols[i]];
  }
}

template void take_centroids(const float*, const Cut&, float*, std::uint8_t*);
template void take_centroids(const double*, const Cut&, double*, std::uint8_t*);
template void centroid_values(const std::uint8_t*, const Cut&, const float*, float*);
template void centroid_values(const std::uint8_t*, const Cut&, const double*, double*);

}  // namespace sparsewire
