// Elements byte plane by byte plane: all first bytes, then all second ones, each entropy coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/entropy.hpp"
#include "kernels/bit_fields.hpp"

namespace sparsewire::weights {

// Bytes of a count or a size.
inline constexpr std::size_t kCountBytes = 4;

// Of `count` elements, the byte of each that `at(i)` points to the first byte of.
template <typename At>
void put_planes(std::size_t width, std::size_t count, At at, std::vector<std::byte>& out) {
  std::vector<std::uint8_t> plane(count);
  for (std::size_t byte = 0; byte < width; ++byte) {
    for (std::size_t i = 0; i < count; ++i) plane[i] = static_cast<std::uint8_t>(at(i)[byte]);
    const std::size_t begin = out.size();
    out.resize(begin + kCountBytes + entropy_bound(count));
    const std::size_t size =
        *entropy_encode(plane.data(), count, 256, out.data() + begin + kCountBytes);
    store_32(out.data() + begin, static_cast<std::uint32_t>(size));
    out.resize(begin + kCountBytes + size);
  }
}

// Reads the planes of `count` elements at the start of [in, end) into `values`; returns where they
// end, or null.
const std::byte* take_planes(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, std::vector<std::byte>& values);

}  // namespace sparsewire::weights
