// An error as a frame to send.
#pragma once

#include "wire/fault.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {

inline wire::Message abort_message(const Error& error) {
  Bytes payload = wire::encode_fault(error);
  const auto size = static_cast<std::uint32_t>(payload.size());
  return {{.kind = wire::FrameKind::abort, .payload = size}, std::move(payload)};
}

}  // namespace sparsewire::comm
