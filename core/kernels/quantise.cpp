// Calls the codec's loop at the level in use.
#include "kernels/quantise.hpp"

#include "kernels/kernels.hpp"

namespace sparsewire {

bool encode_values(Codec codec, const float* in, std::size_t count, std::uint64_t key,
                   std::byte* out) {
  return kernels().encode(codec, in, count, key, out);
}

void decode_values(Codec codec, const std::byte* in, std::size_t count, float* out) {
  kernels().decode(codec, in, count, out);
}

}  // namespace sparsewire
