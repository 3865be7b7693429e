// first_not_finite, norms and means: the loops over values before they are quantised.
#pragma once

#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/floats.hpp"

namespace sparsewire {
namespace {

// x^p for norms, to about seven digits, by arithmetic that gives the same bits on every machine,
// unlike the mathematical library. Sums are grouped so that processors can overlap them. For powers
// above kLargestPower the norm is the largest magnitude.
inline constexpr double kLargestPower = 1024;

// log2 of a normal number; exact for powers of two. For m in [1/sqrt 2, sqrt 2), log2 m = 2/ln 2
// artanh s with s = (m - 1) / (m + 1). s is at most 0.172, so that the next term of the series is
// below 2^-30.
template <typename T>
inline T log2_of(T x) {
  constexpr T kRoot = T(1.4142135623730951);
  constexpr T kFactor = T(2.8853900817779268);
  const BitsOf<T> bits = bits_of(x);
  // Exponents begin anew at the root, instead of at 1.
  const BitsOf<T> shifted = bits + (bits_of(T{2}) - bits_of(kRoot));
  const auto exponent = static_cast<IntegerOf<T>>(shifted >> kMantissaOf<T>) - kBias<T>;
  const T m = of_bits<T>(bits - (static_cast<BitsOf<T>>(exponent) << kMantissaOf<T>));
  const T s = (m - 1) / (m + 1);
  const T t = s * s;
  const T u = t * t;
  const T series = (1 + t * (T(1) / 3)) + u * ((T(1) / 5 + t * (T(1) / 7)) + u * (T(1) / 9));
  return static_cast<T>(exponent) + kFactor * s * series;
}

// 2^y; zero if that is no normal number. The whole part goes to the exponent, and the rest, at most
// 1/2, into the series of exp.
template <typename T>
inline T exp2_of(T y) {
  constexpr T kLn2 = T(0.69314718055994531);
  constexpr auto kLeast = static_cast<T>(1 - kBias<T>);
  constexpr auto kMost = static_cast<T>(kBias<T>);
  const T inside = y < kLeast ? kLeast : y > kMost ? kMost : y;
  const auto whole = static_cast<IntegerOf<T>>(inside < 0 ? inside - T(0.5) : inside + T(0.5));
  const T z = (inside - static_cast<T>(whole)) * kLn2;
  const T w = z * z;
  const T low = (1 + z) + w * (T(0.5) + z * (T(1) / 6));
  const T high = (T(1) / 24 + z * (T(1) / 120)) + w * (T(1) / 720 + z * (T(1) / 5040));
  const T series = low + w * w * high;
  return y < kLeast ? 0 : series * power_of_two<T>(whole);
}

// For x of at least 0; a subnormal x counts as zero.
template <typename T>
inline T power_of(T x, T p) {
  return x < power_of_two<T>(1 - kBias<T>) ? 0 : exp2_of(p * log2_of(x));
}

template <typename T>
inline IntegerOf<T> largest_bits(const T* values, std::size_t count) {
  IntegerOf<T> largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const IntegerOf<T> bits = magnitude_bits(values[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <typename T>
std::size_t first_not_finite(const T* values, std::size_t count) {
  constexpr auto kInfinity = static_cast<IntegerOf<T>>(kInfinityBits<T>);
  std::size_t found = count;
  for_each_tile(count, [&](std::size_t first, std::size_t length) {
    if (found != count || largest_bits(values + first, length) < kInfinity) return;
    for (found = first; magnitude_bits(values[found]) < kInfinity;) ++found;
  });
  return found;
}

// One sum per lane, and the lanes added up in order: an order that no level has to change.
template <typename T, typename F>
inline double sum_in_lanes(const T* values, std::size_t count, F f) {
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  std::size_t first = 0;
  for (; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(f(values[first + lane]));
    }
  }
  for (std::size_t lane = 0; first + lane < count; ++lane) {
    sums[lane] += static_cast<double>(f(values[first + lane]));
  }
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

// The sum of (|value| / top)^power, where top is the largest magnitude. Powers are computed in a
// tile, which vectorises.
template <typename T>
inline double sum_of_powers(const T* values, std::size_t count, T top, T power) {
  double sum = 0;
  for_each_tile(count, [=, &sum](std::size_t first, std::size_t length) {
    T powers[kTile];
    SPARSEWIRE_INDEPENDENT
    for (std::size_t i = 0; i < length; ++i) {
      powers[i] = power_of(magnitude(values[first + i]) / top, power);
    }
    sum += sum_in_lanes(powers, length, [](T each) { return each; });
  });
  return sum;
}

// The norm of values / top: without the division, squares may leave the range of double.
template <typename T>
inline double norm_below_one(const T* values, std::size_t count, T top, double power) {
  if (power == 1) {
    return sum_in_lanes(values, count, [=](T value) { return magnitude(value) / top; });
  }
  if (power == 2) {
    return __builtin_sqrt(sum_in_lanes(values, count, [=](T value) {
      const T ratio = value / top;
      return ratio * ratio;
    }));
  }
  return power_of(sum_of_powers(values, count, top, static_cast<T>(power)), 1 / power);
}

// Squares of float32 are exact in double, and their sum fits.
inline double norm_in_double(const float* values, std::size_t count, double power) {
  if (power == 1) {
    return sum_in_lanes(values, count, [](float value) { return magnitude(value); });
  }
  return __builtin_sqrt(sum_in_lanes(values, count, [](float value) {
    return static_cast<double>(value) * static_cast<double>(value);
  }));
}

template <typename T>
inline T norm_of(const T* values, std::size_t count, double power) {
  if constexpr (__is_same(T, float)) {
    if (power == 1 || power == 2) return static_cast<T>(norm_in_double(values, count, power));
  }
  const T top = of_bits<T>(static_cast<BitsOf<T>>(largest_bits(values, count)));
  if (top == 0 || power > kLargestPower) return top;
  const T norm = static_cast<T>(norm_below_one(values, count, top, power) * top);
  return norm > top ? norm : top;
}

template <typename T>
void norms(const T* values, std::size_t count, std::size_t block, double power, T* out) {
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    out[index] = norm_of(values + first, length, power);
  });
}

// Divided first, so that no sum overflows.
template <typename T>
void means(const T* values, std::size_t count, std::size_t block, T* out) {
  for_each_block(count, block, [=](std::size_t index, std::size_t first, std::size_t length) {
    const auto size = static_cast<double>(length);
    const double mean = sum_in_lanes(values + first, length, [=](T value) {
      return static_cast<double>(magnitude(value)) / size;
    });
    const T top = of_bits<T>(static_cast<BitsOf<T>>(largest_bits(values + first, length)));
    out[index] = mean < static_cast<double>(top) ? static_cast<T>(mean) : top;
  });
}

}  // namespace
}  // namespace sparsewire
