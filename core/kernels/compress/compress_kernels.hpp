// The loops of compression operators that touch every element, compiled once per instruction set
// like those of kernels.hpp, of which this table is a part. All are pure functions: with equal
// arguments every level writes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsewire {

enum class Norm : std::uint8_t { l1 = 0, l2, linf };
inline constexpr std::uint8_t kNormCount = 3;

constexpr std::string_view name_of(Norm norm) {
  constexpr std::string_view names[kNormCount] = {"l1", "l2", "linf"};
  return names[static_cast<std::size_t>(norm)];
}

// A symbol of a dithering operator is its signed level plus the number of levels, so that
// 2 * levels + 1 symbols exist.
inline constexpr std::uint32_t kMaxDitherLevels = 127;

// Exponents of finite numbers, as float32 holds them.
inline constexpr std::size_t kExponents = 255;

// Where a loop draws its noise: element i of its input is number `first` + i of the vector, and
// the noise is a function of key and number alone, so that a vector may be worked on in tiles.
struct NoiseSource {
  std::uint64_t key;
  std::uint64_t first;
};

// Values are finite float32. Vectors are cut into blocks of `block` elements, the last one of what
// is left, and a tile starts where a block does; there is one norm per block. Bit i of a bitmap is
// bit i % 64 of its word i / 64; the last word is written as a whole, with zeros behind the last
// element. Bits of bytes are bit i % 8 of byte i / 8, in the same way.
struct CompressKernels {
  // Position of the first value that is NaN or infinite, or `count`.
  std::size_t (*first_not_finite)(const float* values, std::size_t count);

  // Sums are in double, in an order of their own, and rounded once; a norm that float32 cannot hold
  // is infinite. No value is larger than the l2 or l-infinity norm of its block.
  void (*norms)(const float* values, std::size_t count, std::size_t block, Norm norm, float* out);

  // Random dithering with levels at equal distances: |x| / norm is rounded to one of the two
  // neighbours among 0, 1/s, ..., 1, with the mean that it has (QSGD; Alistarh et al., NeurIPS
  // 2017). One level makes it ternary quantisation. Probabilities are rounded down, to multiples
  // of 2^-30 for one level and 2^-23 for the most.
  void (*dither)(const float* values, std::size_t count, std::size_t block, const float* norms,
                 std::uint32_t levels, NoiseSource noise, std::uint8_t* symbols);
  void (*undither)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                   const float* norms, std::uint32_t levels, float* values);

  // The same with levels at 0, 2^(1-s), ..., 1/2, 1 (natural dithering; Horvath et al., 2019).
  void (*natural_dither)(const float* values, std::size_t count, std::size_t block,
                         const float* norms, std::uint32_t levels, NoiseSource noise,
                         std::uint8_t* symbols);
  void (*natural_undither)(const std::uint8_t* symbols, std::size_t count, std::size_t block,
                           const float* norms, std::uint32_t levels, float* values);

  // Random rounding to one of the two neighbouring powers of two, with the mean that the value has
  // (natural compression; Horvath et al., 2019): exponents below kExponents, and the bits of the
  // signs. Values below 2^-126 become that or zero; 2^127 is the largest, and so values above it
  // lose their mean.
  void (*natural_compress)(const float* values, std::size_t count, NoiseSource noise,
                           std::uint8_t* exponents, std::uint8_t* signs);
  void (*natural_decompress)(const std::uint8_t* exponents, const std::uint8_t* signs,
                             std::size_t count, float* values);

  // Bits of the values that are negative or -0.0, and `magnitude` with the signs of such bits.
  void (*signs)(const float* values, std::size_t count, std::uint8_t* signs);
  void (*apply_signs)(const std::uint8_t* signs, std::size_t count, float magnitude, float* values);

  // Sets the bits of values of at least this magnitude; returns how many. Infinity and NaN reach
  // everything that is finite.
  std::size_t (*reaching)(const float* values, std::size_t count, float magnitude,
                          std::uint64_t* bitmap);

  // Sets each bit with this probability, from 0 to 1, rounded to a multiple of 2^-32, and
  // independently of the others; returns how many.
  std::size_t (*bernoulli)(std::size_t count, double probability, NoiseSource noise,
                           std::uint64_t* bitmap);
};

}  // namespace sparsewire
