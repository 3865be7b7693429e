// The loops of compression operators that touch every element, compiled once per instruction set.
// Their table is a part of that in kernels.hpp. All are pure functions: with equal arguments every
// level writes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/rans.hpp"

namespace sparsewire {

// A symbol of a dithering operator is its signed level plus the number of levels, so that
// 2 * levels + 1 symbols exist.
inline constexpr std::uint32_t kMaxDitherLevels = 127;

inline constexpr std::size_t kMaxSorted = 256;

// Values are finite float or double. Vectors are cut into blocks of `block` elements, and the last
// block may be shorter. There is one norm per block. Noise is a function of the key and of an
// element's position alone.
template <typename T>
struct VectorKernels {
  // Position of the first value that is NaN or infinite, or `count`.
  std::size_t (*first_not_finite)(const T* values, std::size_t count);

  // The norm of a power of at least 1. Sums are added in a fixed order of their own, and a norm
  // that T cannot hold is infinite. No value is larger than a norm of its block, but for power 1 in
  // float by rounding. Powers other than 1, 2 and infinity are good to six digits.
  void (*norms)(const T* values, std::size_t count, std::size_t block, double power, T* out);

  // The mean magnitude of each block: at most the largest magnitude.
  void (*means)(const T* values, std::size_t count, std::size_t block, T* out);

  // Random dithering with levels at equal distances: |x| / norm is rounded to one of the two
  // neighbours among 0, 1/s, ..., 1, so that the mean stays the same (QSGD; Alistarh et al.,
  // NeurIPS 2017). With one level it is ternary quantisation. Probabilities are rounded down: for
  // float to multiples of 2^-30 with one level and 2^-23 with the most levels; for double to 2^-62
  // and 2^-55. The first value is that at `position` of a vector.
  void (*dither)(const T* values, std::size_t count, std::size_t block, const T* norms,
                 std::uint32_t levels, std::uint64_t key, std::size_t position,
                 std::uint8_t* symbols);
  void (*undither)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                   const T* norms, std::uint32_t levels, T* values);

  // The same with levels at 0, 2^(1-s), ..., 1/2, 1 (natural dithering; Horvath et al., 2019).
  void (*natural_dither)(const T* values, std::size_t count, std::size_t block, const T* norms,
                         std::uint32_t levels, std::uint64_t key, std::size_t position,
                         std::uint8_t* symbols);
  void (*natural_undither)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                           const T* norms, std::uint32_t levels, T* values);

  // Rounds to the nearest multiple of a step, one per block, which is written to `steps`: the least
  // power of two, from the smallest normal number on, of which `levels` multiples reach the largest
  // magnitude. `levels` is a power of two less 1. Then the way back, exact if the product is
  // finite.
  void (*nearest_multiples)(const T* values, std::size_t count, std::size_t block,
                            std::uint32_t levels, T* steps, std::uint8_t* symbols);
  void (*multiples)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                    const T* steps, std::uint32_t levels, T* values);

  // Rounds to the nearest of 0 and a scale times 2^(1 - levels), ..., 1/2, 1, with the levels of
  // natural_dither. A scale, one per block, is written: the power of two that is nearest to the
  // largest magnitude, from the smallest normal number to the largest power. `levels` is at
  // most 64.
  void (*nearest_powers)(const T* values, std::size_t count, std::size_t block,
                         std::uint32_t levels, T* scales, std::uint8_t* symbols);

  // Random rounding to one of the two neighbouring powers of two, so that the mean stays the same
  // (natural compression; Horvath et al., 2019). A code is twice the exponent as T stores it, plus
  // one if negative; zero for zero. Values below the smallest normal number become that number or
  // zero; above the largest power they may get the exponent of infinity.
  void (*natural_compress)(const T* values, std::size_t count, std::uint64_t key,
                           std::uint16_t* codes);

  // The values of codes, once `base` is added to those that are not zero; codes of a byte or two.
  void (*natural_decompress_bytes)(const std::uint8_t* codes, std::size_t count, std::uint32_t base,
                                   T* values);
  void (*natural_decompress)(const std::uint16_t* codes, std::size_t count, std::uint32_t base,
                             T* values);

  // Symbols: 0 for negative values, 1 for zeros of either sign, 2 for positive ones.
  void (*signs)(const T* values, std::size_t count, std::uint8_t* symbols);

  // The k-th largest magnitude, k from 1 to `count`. NaN counts as larger than infinity. It takes a
  // pass for each bit of T, so values should be few.
  T (*kth_largest)(const T* values, std::size_t count, std::size_t k);

  // A magnitude above zero that at least k values reach, k from 1 on, unless some of these are
  // zero. If k is at most 64, few other values reach it.
  T (*reached_by_some)(const T* values, std::size_t count, std::size_t k);

  // Writes the magnitudes of at most kMaxSorted values, the largest first. It takes count^2 steps.
  void (*sort_magnitudes)(const T* values, std::size_t count, T* sorted);

  // Sets the bits of values of at least this magnitude; returns how many. Infinity and NaN reach
  // every finite bound.
  std::size_t (*reaching)(const T* values, std::size_t count, T bound, std::uint64_t* bitmap);

  // Sets the bits of values of which parameter - rate * value differs from the parameter once both
  // are rounded to bfloat16; returns how many. Zeros of either sign are the same.
  std::size_t (*visible)(const T* values, std::size_t count, const T* parameters, T rate,
                         std::uint64_t* bitmap);
};

// Bit i of a bitmap is bit i % 64 of its word i / 64; the last word is written as a whole, with
// zeros after the last element.
struct CompressKernels {
  VectorKernels<float> singles;
  VectorKernels<double> doubles;

  template <typename T>
  constexpr const VectorKernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return singles;
    } else {
      return doubles;
    }
  }

  // Sets each bit with this probability, from 0 to 1, rounded to a multiple of 2^-32, and
  // independently of the others; returns how many.
  std::size_t (*bernoulli)(std::size_t count, double probability, std::uint64_t key,
                           std::uint64_t* bitmap);

  // out = left right, matrices of `side` rows and columns, row by row. The terms of a sum are added
  // from the first to the last.
  void (*product)(const double* left, const double* right, std::size_t side, double* out);

  // Sets the bits of elements of which the bits differ, and clears the others, up to the end of the
  // last word; returns how many differ. By the logarithm of an element's bytes: 1, 2, 4 and 8.
  std::size_t (*differing[4])(const std::byte* a, const std::byte* b, std::size_t count,
                              std::uint64_t* bitmap);

  // `rounds` of rANS, each of a symbol for each of the kRansLanes states. The encoder goes from the
  // last symbol to the first, and writes words before `out`; returns the first, and may write 16
  // bytes before it. The decoder takes words from `in` up to `end`, and stops where there may be
  // too few for another round; returns how many it made.
  std::byte* (*rans_encode)(const RansEncoder& encoder, const std::uint8_t* symbols,
                            std::size_t rounds, std::uint32_t* states, std::byte* out);
  std::size_t (*rans_decode)(const RansDecoder& decoder, const std::byte*& in, const std::byte* end,
                             std::uint8_t* symbols, std::size_t rounds, std::uint32_t* states);
};

}  // namespace sparsewire
