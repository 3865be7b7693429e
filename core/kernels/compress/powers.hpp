// x^p for norms, to about seven digits, by arithmetic that gives the same bits on every machine, as
// that of the mathematical library need not. Sums are grouped so that processors can overlap them.
#pragma once

#include "kernels/compress/floats.hpp"

namespace sparsewire {
namespace {

// The norm of a larger power is taken for the largest magnitude.
inline constexpr double kLargestPower = 1024;

// log2 of a normal number; exact for powers of two. Of m in [1/sqrt 2, sqrt 2), log2 m = 2/ln 2
// artanh s, where s is (m - 1) / (m + 1): at most 0.172, so that the next term of the series is
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

// 2^y; zero where that is no normal number. The whole part goes to the exponent, and the rest, at
// most 1/2, into the series of exp.
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

// For x of at least 0; a subnormal one counts as zero.
template <typename T>
inline T power_of(T x, T p) {
  return x < power_of_two<T>(1 - kBias<T>) ? 0 : exp2_of(p * log2_of(x));
}

}  // namespace
}  // namespace sparsewire
