// Encodes and decodes joins.
#include "wire/join.hpp"

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {

void encode(const Join& join, std::span<std::byte, kJoinBytes> out) {
  encode(join.call.descriptor, out.first<kDescriptorBytes>());
  std::byte* at = out.data() + kDescriptorBytes;
  store(at, static_cast<std::uint8_t>(join.call.collective));
  store(at + 1, static_cast<std::uint8_t>(join.call.algorithm));
  store(at + 2, std::uint16_t{0});
  store(at + 4, join.call.root);
  store(at + 8, join.elements);
  store(at + 16, join.call.unit);
  store(at + 20, std::uint32_t{0});
  store(at + 24, join.crowded);
}

Result<Join> decode_join(std::span<const std::byte> in) {
  if (in.size() != kJoinBytes) return protocol_error("join: wrong size");
  const auto descriptor = decode_descriptor(in.first(kDescriptorBytes));
  if (!descriptor) return descriptor.error();
  const std::byte* at = in.data() + kDescriptorBytes;
  const auto collective = load<std::uint8_t>(at);
  const auto algorithm = load<std::uint8_t>(at + 1);
  if (collective >= kCollectiveCount) return protocol_error("join: unknown collective");
  if (algorithm >= kAlgorithmCount) return protocol_error("join: unknown algorithm");
  if (load<std::uint16_t>(at + 2) != 0) return protocol_error("join: reserved bits are set");
  if (load<std::uint32_t>(at + 20) != 0) return protocol_error("join: reserved bits are set");
  const Join join{.call = {.descriptor = *descriptor,
                           .collective = static_cast<Collective>(collective),
                           .algorithm = static_cast<Algorithm>(algorithm),
                           .root = load<std::uint32_t>(at + 4),
                           .unit = load<std::uint32_t>(at + 16)},
                  .elements = load<std::uint64_t>(at + 8),
                  .crowded = load<std::uint64_t>(at + 24)};
  const std::uint64_t rows = descriptor->count / descriptor->row;
  if (join.call.unit == 0 || rows % join.call.unit != 0)
    return protocol_error("join: unit does not divide");
  if (!descriptor->is_sparse) return protocol_error("join: not of a sparse vector");
  if (join.elements > descriptor->count || join.crowded > join.elements) {
    return protocol_error("join: too many elements");
  }
  return join;
}

}  // namespace sparsewire::wire
