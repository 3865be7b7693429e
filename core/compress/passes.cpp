// Squares are added up in lanes of float for some thousand values, and these sums in double, so
// that memory is what takes the time.
#include "compress/passes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace sparsewire {
namespace {

// Values whose squares are added up in float; they are worked on while they are in the cache.
constexpr std::size_t kAtOnce = 4096;
constexpr std::size_t kSquareLanes = 16;

class Squares {
 public:
  // Adds the squares of `count` values.
  void add(const float* values, std::size_t count) {
    std::array<float, kSquareLanes> lanes{};
    std::size_t i = 0;
    for (; i + kSquareLanes <= count; i += kSquareLanes) {
      for (std::size_t k = 0; k < kSquareLanes; ++k) lanes[k] += values[i + k] * values[i + k];
    }
    for (; i < count; ++i) lanes[0] += values[i] * values[i];
    for (const float lane : lanes) sum_ += static_cast<double>(lane);
  }

  double norm() const { return std::sqrt(sum_); }

 private:
  double sum_ = 0;
};

}  // namespace

Sizes subtract_and_measure(const float* start, const float* now, const float* added, float beta,
                           float* out, std::size_t count) {
  Squares moved;
  Squares turned;
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t end = std::min(begin + kAtOnce, count);
    for (std::size_t i = begin; i < end; ++i) out[i] = start[i] - now[i];
    moved.add(out + begin, end - begin);
    if (!added) continue;
    for (std::size_t i = begin; i < end; ++i) out[i] += beta * added[i];
    turned.add(out + begin, end - begin);
  }
  return {moved.norm(), added ? turned.norm() : moved.norm()};
}

double scale_and_measure(float* values, float factor, std::size_t count) {
  Squares squares;
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t end = std::min(begin + kAtOnce, count);
    if (factor != 1) {
      for (std::size_t i = begin; i < end; ++i) values[i] *= factor;
    }
    squares.add(values + begin, end - begin);
  }
  return squares.norm();
}

}  // namespace sparsewire
