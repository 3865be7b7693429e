// Conversions between Python's numbers and the core's types.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace sparsewire::bindings {

inline std::chrono::nanoseconds nanoseconds_of(double seconds) {
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
