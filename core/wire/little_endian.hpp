// Fixed-width integers in the wire's byte order, independent of the machine's.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace sparsewire::wire {

template <std::unsigned_integral T>
constexpr T swapped_on_big_endian(T value) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) return value;
  T swapped = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    swapped = static_cast<T>((swapped << 8) | ((value >> (8 * i)) & 0xff));
  }
  return swapped;
}

template <std::unsigned_integral T>
void store(std::byte* out, T value) {
  value = swapped_on_big_endian(value);
  std::memcpy(out, &value, sizeof value);
}

template <std::unsigned_integral T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return swapped_on_big_endian(value);
}

}  // namespace sparsewire::wire
