// A fault: an error that travels, as the payload of fail, refuse and abort frames.
#pragma once

#include <span>

#include "wire/frame.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: code u8, zero u8, zero u16, rank u32 (two's complement), UTF-8 text.
inline constexpr std::size_t kFaultHeaderBytes = 8;

struct Fault {
  Error error;
};

// Text beyond the limit is cut.
Bytes encode_fault(const Error& error);
Result<Fault> decode_fault(std::span<const std::byte> in);

// Calls take(error) with the error of a frame that holds one.
template <typename Take>
Status take_fault(const Message& message, Take&& take) {
  const auto fault = decode_fault(message.payload.view());
  if (!fault) return fault.error();
  take(fault->error);
  return {};
}

// A frame of such a kind; an abort has no sequence number.
Message fault_message(FrameKind kind, const Error& error, std::uint64_t seq = 0);

}  // namespace sparsewire::wire
