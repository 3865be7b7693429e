// Cuts a vector where what elements share ends: the norm of a block, or the stream of noise.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/compress/compress_kernels.hpp"
#include "kernels/convert.hpp"
#include "kernels/noise.hpp"

namespace sparsewire {
namespace {

// Elements that draw from one stream of noise.
inline constexpr std::uint64_t kNoiseBucket = 65536;

inline constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr unsigned kMantissa = 23;

inline std::uint32_t magnitude_bits(float value) { return to_bits(value) & kMagnitudeBits; }

// Calls visit(index, first, length) for the blocks that together cover [0, count).
template <typename Visit>
inline void for_each_block(std::size_t count, std::size_t block, Visit visit) {
  std::size_t index = 0;
  for (std::size_t first = 0; first < count; ++index) {
    const std::size_t length = count - first < block ? count - first : block;
    visit(index, first, length);
    first += length;
  }
}

// A stretch of noise: that of elements one behind another.
struct NoiseStretch {
  Noise noise;
  std::uint32_t position;

  std::uint32_t operator[](std::uint32_t i) const { return noise[position + i]; }
};

// Calls visit(noise, first, length) for stretches that together cover [0, count).
template <typename Visit>
inline void for_each_stretch(std::size_t count, NoiseSource source, Visit visit) {
  for (std::size_t first = 0; first < count;) {
    const std::uint64_t number = source.first + first;
    const std::uint64_t position = number % kNoiseBucket;
    const std::uint64_t room = kNoiseBucket - position;
    const std::size_t length = count - first < room ? count - first : room;
    const Noise noise(source.key, number / kNoiseBucket);
    visit(NoiseStretch{noise, static_cast<std::uint32_t>(position)}, first, length);
    first += length;
  }
}

}  // namespace
}  // namespace sparsewire
