// A join: how a rank tells all others which sparse collective it has called, and how much it
// brings.
#pragma once

#include "wire/call.hpp"

namespace sparsewire::wire {

// Equal stretches of a vector, in which `crowded` of a join counts.
inline constexpr std::uint64_t kCrowdStretches = 16;

// Byte layout, little endian: the descriptor, collective u8, algorithm u8, zero u16, root u32,
// elements u64, unit u32, zero u32, crowded u64.
struct Join {
  Call call;
  // What this rank names, in elements, and what of it lies in the sixteenth of the vector that
  // holds the most of it: the fields in which ranks may differ.
  std::uint64_t elements = 0;
  std::uint64_t crowded = 0;
};
inline constexpr std::size_t kJoinBytes = kDescriptorBytes + 32;

void encode(const Join& join, std::span<std::byte, kJoinBytes> out);
Result<Join> decode_join(std::span<const std::byte> in);

}  // namespace sparsewire::wire
