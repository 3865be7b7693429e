// Cuts a vector where what elements share ends: the norm of a block, or what noise is drawn from.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/compress/floats.hpp"

namespace sparsewire {
namespace {

// Elements that draw noise from one state.
inline constexpr std::uint64_t kNoiseSpan = 65536;

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
template <typename T>
struct NoiseStretch {
  typename Layout<T>::Noise noise;
  std::uint32_t position;

  BitsOf<T> operator[](std::uint32_t i) const { return noise[position + i]; }
};

// Calls visit(noise, first, length) for stretches that together cover [0, count), with as many bits
// of noise for each element as T has.
template <typename T, typename Visit>
inline void for_each_stretch(std::size_t count, NoiseSource source, Visit visit) {
  for (std::size_t first = 0; first < count;) {
    const std::uint64_t number = source.first + first;
    const std::uint64_t position = number % kNoiseSpan;
    const std::uint64_t room = kNoiseSpan - position;
    const std::size_t length = count - first < room ? count - first : room;
    const typename Layout<T>::Noise noise(source.key, number / kNoiseSpan);
    visit(NoiseStretch<T>{noise, static_cast<std::uint32_t>(position)}, first, length);
    first += length;
  }
}

}  // namespace
}  // namespace sparsewire
