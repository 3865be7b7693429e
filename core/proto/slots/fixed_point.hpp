// Values as integers of 32 bits, for aggregators that cannot add floats (SwitchML, NSDI 2021). All
// values of a block share a power of two, chosen so that no sum over the workers overflows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace sparsewire::proto {

// All functions here take `count` values of `dtype`: float32, float16 or bfloat16; integers are of
// the machine's order. No pointer needs to be aligned.

// The biased float32 exponent of the largest magnitude: at least wire::kLeastExponent, and
// wire::kNotFinite if a value is infinite or NaN.
std::uint8_t shared_exponent(const std::byte* values, std::size_t count, DType dtype);
// The same for the finite values alone.
std::uint8_t finite_exponent(const std::byte* values, std::size_t count, DType dtype);

class FixedPoint {
 public:
  // For sums of 1 to 2^31 - 1 workers.
  explicit FixedPoint(std::uint32_t workers);

  // No magnitude of an encoded value is above 2^bits.
  int bits() const { return bits_; }

  // Writes value * 2^(bits - (E + 1)), rounded to nearest even, where E = exponent - 127. The
  // exponent is no less than that of the finite values; values that are not finite become any
  // integers.
  void encode(std::byte* integers, const std::byte* values, std::size_t count, DType dtype,
              std::uint8_t exponent) const;

  // Writes sum / 2^(bits - (E + 1)), for avg divided by the number of workers, in float64 and
  // rounded once to `dtype`. A sum of n values is off by at most n * 2^(E - bits), and by what
  // rounding to the dtype adds.
  void decode(std::byte* values, const std::byte* sums, std::size_t count, DType dtype, ReduceOp op,
              std::uint8_t exponent) const;

 private:
  std::uint32_t workers_;
  int bits_;
};

}  // namespace sparsewire::proto
