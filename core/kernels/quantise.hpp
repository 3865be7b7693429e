// Values of float32 to those of a codec and back, with the kernels in use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace sparsewire {

// Writes `count` values to `out`, in the layout and size that wire/codec.hpp gives. False where the
// codec cannot hold one of them: a half type would turn a finite value into an infinity, or a value
// to be quantised is NaN or infinite; `out` is of no use then.
//
// The stochastic codecs round at random, by a generator that `key` alone determines: equal values
// and keys give equal bytes, and a key must not come back for other values whose errors are to be
// independent. The mean of what decodes is the value itself. With a span's scale c and levels up
// to s, an error is at most c / s and its variance at most c^2 / (4 s^2).
bool encode_values(Codec codec, const float* in, std::size_t count, std::uint64_t key,
                   std::byte* out);

// Reads `count` values that encode_values wrote, or that wire::check_values took.
void decode_values(Codec codec, const std::byte* in, std::size_t count, float* out);

}  // namespace sparsewire
