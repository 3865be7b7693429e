// Encodes, decodes and words the operation's descriptor.
#include "wire/descriptor.hpp"

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out) {
  std::byte* at = out.data();
  store(at, static_cast<std::uint8_t>(descriptor.dtype));
  store(at + 1, static_cast<std::uint8_t>(descriptor.op));
  store(at + 2, std::uint16_t{0});
  store(at + 4, std::uint32_t{0});
  store(at + 8, descriptor.count);
}

Result<Descriptor> decode_descriptor(std::span<const std::byte> in) {
  if (in.size() != kDescriptorBytes) return protocol_error("descriptor: wrong size");
  const std::byte* at = in.data();
  const auto dtype = load<std::uint8_t>(at);
  const auto op = load<std::uint8_t>(at + 1);
  const auto count = load<std::uint64_t>(at + 8);
  if (dtype >= kDTypeCount) return protocol_error("descriptor: unknown dtype");
  if (op >= kReduceOpCount) return protocol_error("descriptor: unknown operation");
  if (load<std::uint16_t>(at + 2) != 0 || load<std::uint32_t>(at + 4) != 0) {
    return protocol_error("descriptor: reserved bits are set");
  }
  if (count > kMaxCount) return protocol_error("descriptor: too many elements");
  return Descriptor{static_cast<DType>(dtype), static_cast<ReduceOp>(op), count};
}

std::string describe(const Descriptor& descriptor) {
  return std::string(name_of(descriptor.op)) + " of " + std::to_string(descriptor.count) + " " +
         std::string(name_of(descriptor.dtype));
}

}  // namespace sparsewire::wire
