// Squares are added up in lanes of float for some thousand values, and these sums in double, so
// that memory is what takes the time.
#include "compress/passes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace sparsewire {
namespace {

constexpr std::size_t kPiece = 4096;
constexpr std::size_t kLanes = 16;

class Squares {
 public:
  // Adds the squares of `count` values.
  void add(const float* values, std::size_t count) {
    std::array<float, kLanes> lanes{};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += values[i + k] * values[i + k];
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
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t end = std::min(begin + kPiece, count);
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
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t end = std::min(begin + kPiece, count);
    if (factor != 1) {
      for (std::size_t i = begin; i < end; ++i) values[i] *= factor;
    }
    squares.add(values + begin, end - begin);
  }
  return squares.norm();
}

}  // namespace sparsewire
