// The layout of encoded values: for quantised ones all scales first, one float32 per span, then
// the codes, packed from the low bits of each byte up. The last byte is filled up with zeros.
#pragma once

#include <cstddef>
#include <span>

#include "base/error.hpp"
#include "base/types.hpp"

namespace sparsewire::wire {

// Bytes of `count` encoded values of a tensor whose elements have `element_size` bytes.
std::size_t values_bytes(Codec codec, std::size_t element_size, std::size_t count);

// Checks that `values` are `count` values that the codec may have written: the elements are
// float32, the length is exact, each scale is finite and not negative, no level is below the
// smallest. Any `raw` values are legal.
Status check_values(Codec codec, std::size_t element_size, std::span<const std::byte> values,
                    std::size_t count);

}  // namespace sparsewire::wire
