// first_not_finite and norms: what is known of values before they are quantised.
#pragma once

#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

std::size_t first_not_finite(const float* values, std::size_t count) {
  std::size_t found = count;
  for_each_tile(count, [&](std::size_t first, std::size_t length) {
    if (found != count) return;
    std::int32_t largest = 0;
    for (std::size_t i = first; i < first + length; ++i) {
      const auto magnitude = static_cast<std::int32_t>(magnitude_bits(values[i]));
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest < static_cast<std::int32_t>(kInfinityBits)) return;
    for (found = first; magnitude_bits(values[found]) < kInfinityBits;) ++found;
  });
  return found;
}

// One sum per lane, and the lanes added up in order: an order that no level has to change.
template <typename F>
inline double sum_in_lanes(const float* values, std::size_t count, F f) {
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  std::size_t first = 0;
  for (; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += f(values[first + lane]);
  }
  for (std::size_t lane = 0; first + lane < count; ++lane) sums[lane] += f(values[first + lane]);
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

inline float norm_of(const float* values, std::size_t count, Norm norm) {
  switch (norm) {
    case Norm::l1:
      return static_cast<float>(sum_in_lanes(values, count, [](float value) {
        return static_cast<double>(from_bits(magnitude_bits(value)));
      }));
    case Norm::l2:
      // Squares of float32 are exact in double.
      return static_cast<float>(__builtin_sqrt(sum_in_lanes(values, count, [](float value) {
        return static_cast<double>(value) * static_cast<double>(value);
      })));
    case Norm::linf:
      break;
  }
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int32_t>(magnitude_bits(values[i]));
    largest = magnitude > largest ? magnitude : largest;
  }
  return from_bits(static_cast<std::uint32_t>(largest));
}

void norms(const float* values, std::size_t count, std::size_t block, Norm norm, float* out) {
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    out[index] = norm_of(values + first, length, norm);
  });
}

}  // namespace
}  // namespace sparsewire
