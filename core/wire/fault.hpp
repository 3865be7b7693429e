// A fault: an error that travels, as the payload of fail and abort frames.
#pragma once

#include <span>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: code u8, zero u8, zero u16, rank u32 (two's complement), UTF-8 text.
inline constexpr std::size_t kFaultHeaderBytes = 8;

struct Fault {
  Error error;
};

// Text beyond the limit is cut.
Bytes encode_fault(const Error& error);
Result<Fault> decode_fault(std::span<const std::byte> in);

}  // namespace sparsewire::wire
