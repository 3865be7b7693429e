// Calls the kernels of the codecs.
#include "proto/stream/values.hpp"

#include <vector>

#include "kernels/kernels.hpp"
#include "wire/codec.hpp"

namespace sparsewire::proto {

Bytes decoded_values(Codec codec, std::span<const std::byte> values, std::size_t count) {
  const std::size_t size = count * sizeof(float);
  auto owner = Bytes::allocate(size);
  decode_values(codec, values.data(), count, reinterpret_cast<float*>(owner.get()));
  return Bytes::shared(std::move(owner), size);
}

std::optional<Bytes> with_encoded_values(const Bytes& payload, std::span<const std::byte> values,
                                         Codec codec, std::uint64_t key) {
  // Behind 16-bit indices the values need not be aligned, and there they are few.
  std::vector<float> aligned(values.size() / sizeof(float));
  std::memcpy(aligned.data(), values.data(), values.size());
  const std::size_t size = wire::values_bytes(codec, sizeof(float), aligned.size());
  bool fits = false;
  Bytes encoded = with_values(payload, values, size, [&](std::byte* out) {
    fits = encode_values(codec, aligned.data(), aligned.size(), key, out);
  });
  if (!fits) return {};
  return encoded;
}

}  // namespace sparsewire::proto
