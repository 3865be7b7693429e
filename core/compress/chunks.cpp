// Transforms one chunk after another. Chunks of zeros stay zero, and cost nothing.
#include "compress/chunks.hpp"

#include <algorithm>
#include <vector>

#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

// The part of a stretch from `first` on, of at most `most` elements.
template <typename T>
Stretch<T> part_of(const Stretch<T>& whole, std::size_t first, std::size_t most) {
  const std::size_t begin = std::min(first, whole.count);
  return {whole.values + begin, std::min(most, whole.count - begin)};
}

class ChunkTransform {
 public:
  explicit ChunkTransform(const TwoSided& transform)
      : transform_(transform), chunk_(transform.elements()), between_(transform.elements()) {}

  template <typename T>
  void apply(Stretch<const T> in, Stretch<T> out) {
    if (std::all_of(in.values, in.values + in.count, [](T value) { return value == 0; })) {
      std::fill_n(out.values, out.count, T{0});
      return;
    }
    std::fill(std::copy_n(in.values, in.count, chunk_.begin()), chunk_.end(), 0.0);
    const auto product = kernels().compress.product;
    product(transform_.matrix, chunk_.data(), transform_.side, between_.data());
    product(between_.data(), transform_.transposed, transform_.side, chunk_.data());
    std::transform(chunk_.data(), chunk_.data() + out.count, out.values,
                   [](double value) { return static_cast<T>(value); });
  }

 private:
  const TwoSided& transform_;
  std::vector<double> chunk_;
  std::vector<double> between_;
};

}  // namespace

template <typename T>
void transform_chunks(const TwoSided& transform, Stretch<const T> in, Stretch<T> out) {
  ChunkTransform of_chunk(transform);
  const std::size_t elements = transform.elements();
  for (std::size_t first = 0; first < std::max(in.count, out.count); first += elements) {
    of_chunk.apply(part_of(in, first, elements), part_of(out, first, elements));
  }
}

template void transform_chunks(const TwoSided&, Stretch<const float>, Stretch<float>);
template void transform_chunks(const TwoSided&, Stretch<const double>, Stretch<double>);

}  // namespace sparsewire
