// The values of a payload in another form: out of a codec, into one, or of another type. What
// stands in front of them, their positions, stays as it is.
#pragma once

#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "base/types.hpp"

namespace sparsewire::proto {

// Values of float32 that a codec has written, and that were checked.
Bytes decoded_values(Codec codec, std::span<const std::byte> values, std::size_t count);

// Makes the view's values plain. They lie in the memory that is returned, or, where that is empty,
// still in the payload.
template <typename View>
Bytes decode_values_of(View& view) {
  if (view.codec == Codec::raw) return {};
  Bytes decoded = decoded_values(view.codec, view.values, view.count);
  view.values = decoded.view();
  view.codec = Codec::raw;
  return decoded;
}

// The payload with `size` bytes, which fill(out) writes, in place of its last ones, `values`.
template <typename Fill>
Bytes with_values(const Bytes& payload, std::span<const std::byte> values, std::size_t size,
                  Fill&& fill) {
  const std::size_t head = payload.size() - values.size();
  auto owner = Bytes::allocate(head + size);
  std::memcpy(owner.get(), payload.data(), head);
  fill(owner.get() + head);
  return Bytes::shared(std::move(owner), head + size);
}

// The payload with its values, of float32, in a codec; nothing where the codec cannot carry them.
// `key` seeds stochastic rounding.
std::optional<Bytes> with_encoded_values(const Bytes& payload, std::span<const std::byte> values,
                                         Codec codec, std::uint64_t key);

}  // namespace sparsewire::proto
