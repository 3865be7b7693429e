// Conversions between Python's numbers and the core's types.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

namespace sparsewire::bindings {

// Negative is none, and beyond a hundred years is a hundred years, which no clock overflows by.
inline std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kMost = 100.0 * 365 * 24 * 3600;
  if (std::isnan(seconds)) throw std::invalid_argument("a time must be a number");
  seconds = std::clamp(seconds, 0.0, kMost);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

inline double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

template <typename Enum>
Enum checked_code(int code, int count, const char* what) {
  if (code < 0 || code >= count) throw std::invalid_argument(std::string("unknown ") + what);
  return static_cast<Enum>(code);
}

// Maps the names of an enumeration to their codes.
template <typename Enum>
nanobind::dict codes(int count) {
  nanobind::dict dict;
  for (int code = 0; code < count; ++code) {
    const std::string_view name = name_of(static_cast<Enum>(code));
    dict[nanobind::str(name.data(), name.size())] = code;
  }
  return dict;
}

}  // namespace sparsewire::bindings
