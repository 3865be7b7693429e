// signs: whether values are negative, zero or positive.
#pragma once

#include "kernels/compress/stretches.hpp"

namespace sparsewire {
namespace {

template <typename T>
void signs(const T* values, std::size_t count, std::uint8_t* symbols) {
  SPARSEWIRE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const IntegerOf<T> sign = values[i] > 0 ? 1 : values[i] < 0 ? -1 : 0;
    symbols[i] = static_cast<std::uint8_t>(sign + 1);
  }
}

}  // namespace
}  // namespace sparsewire
