// The operation's descriptor: what all ranks must agree on before anything is added.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/types.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: dtype u8, op u8, zero u16, zero u32, count u64.
struct Descriptor {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;  // elements

  bool operator==(const Descriptor&) const = default;
};
inline constexpr std::size_t kDescriptorBytes = 16;

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out);
Result<Descriptor> decode_descriptor(std::span<const std::byte> in);

// For error messages: "sum of 1000 float32".
std::string describe(const Descriptor& descriptor);

}  // namespace sparsewire::wire
