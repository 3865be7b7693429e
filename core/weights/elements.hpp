// Elements of weights as bits, and the steps between them: what codes of changes are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

// In a loop over elements at `count` positions, fetches one to come: so far ahead that memory is
// busy all the time.
template <typename T>
void fetch_ahead(const std::byte* positions, std::size_t i, std::size_t count,
                 const std::byte* elements) {
  constexpr std::size_t kAhead = 24;
  const auto at = load<std::uint32_t>(positions, std::min(i + kAhead, count - 1));
  __builtin_prefetch(elements + at * sizeof(T), 1);
}

// All of the following is without branches, which could not be predicted.

// Numbers in the order of their values: neighbours differ by one. It is its own inverse, and one to
// one for all bits.
template <typename T>
T ordered(T bits, Numbers numbers) {
  constexpr unsigned kTop = 8 * sizeof(T) - 1;
  const auto flips = static_cast<T>((bits >> kTop) & (numbers == Numbers::floating ? 1 : 0));
  return static_cast<T>(bits ^ (static_cast<T>(T{0} - flips) >> 1));
}

// Holds the number of every step.
template <typename T>
using NumberOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// A step that is not zero as a number from 0 on: 1, -1, 2, -2 and so on.
template <typename T>
NumberOf<T> number_of(T step) {
  constexpr unsigned kTop = 8 * sizeof(T) - 1;
  const auto is_negative = static_cast<T>(step >> kTop);
  const auto magnitude = static_cast<T>((step ^ static_cast<T>(T{0} - is_negative)) + is_negative);
  return (NumberOf<T>{magnitude} - 1) << 1 | is_negative;
}

template <typename T>
T step_of(NumberOf<T> number) {
  const auto is_negative = static_cast<T>(number & 1);
  const auto magnitude = static_cast<T>((number >> 1) + 1);
  return static_cast<T>((magnitude ^ static_cast<T>(T{0} - is_negative)) + is_negative);
}

// The magnitude of the least step is one more than that of the largest.
template <typename T>
bool is_number_of_step(NumberOf<T> number) {
  return (number >> 1) < NumberOf<T>{1} << (8 * sizeof(T) - 1);
}

template <typename T>
T step_between(T from, T to, Numbers numbers) {
  return static_cast<T>(ordered(to, numbers) - ordered(from, numbers));
}

// The bits of an element that has moved by this step.
template <typename T>
T stepped(T bits, T step, Numbers numbers) {
  return ordered(static_cast<T>(ordered(bits, numbers) + step), numbers);
}

}  // namespace sparsewire::weights
