// Elements of weights as bits, and the steps between them: what codes of changes are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sparsewire::weights {

// What the bits of an element stand for, which makes the code of its change short, and nothing
// else.
enum class Numbers : std::uint8_t {
  floating,  // sign and magnitude, as IEEE 754 has them
  integer,   // two's complement, or anything else
};
inline constexpr std::uint8_t kNumbersCount = 2;

struct Elements {
  std::size_t width;  // bytes: 1, 2, 4 or 8
  Numbers numbers;
};

// Calls f of a value of the integer type that has the elements' width.
template <typename F>
auto for_width(std::size_t width, F f) {
  switch (width) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

template <typename T>
T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, std::size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// Numbers in the order of their values: neighbours differ by one. It is its own inverse, and one to
// one for all bits.
template <typename T>
T ordered(T bits, Numbers numbers) {
  constexpr T kSign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  const bool flips = numbers == Numbers::floating && (bits & kSign);
  return flips ? static_cast<T>(bits ^ static_cast<T>(kSign - 1)) : bits;
}

// A step that is not zero as a number from 0 on: 1, -1, 2, -2 and so on.
template <typename T>
std::uint64_t number_of(T step) {
  constexpr unsigned kTop = 8 * sizeof(T) - 1;
  const bool is_negative = (step >> kTop) != 0;
  const T magnitude = is_negative ? static_cast<T>(T{0} - step) : step;
  return (std::uint64_t{magnitude} - 1) << 1 | (is_negative ? 1 : 0);
}

template <typename T>
T step_of(std::uint64_t number) {
  const auto magnitude = static_cast<T>((number >> 1) + 1);
  return number & 1 ? static_cast<T>(T{0} - magnitude) : magnitude;
}

// The bits of an element that has moved by the step of this number.
template <typename T>
T stepped(T bits, std::uint64_t number, Numbers numbers) {
  return ordered(static_cast<T>(ordered(bits, numbers) + step_of<T>(number)), numbers);
}

}  // namespace sparsewire::weights
