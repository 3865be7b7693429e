// What lanes and aggregators send alike: an error as a frame, and how much may wait to be sent.
#pragma once

#include "wire/fault.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {

// Results that may wait for one rank before its owner pauses.
inline constexpr std::size_t kMaxQueuedBytes = 8u << 20;

inline wire::Message abort_message(const Error& error) {
  Bytes payload = wire::encode_fault(error);
  const auto size = static_cast<std::uint32_t>(payload.size());
  return {{.kind = wire::FrameKind::abort, .payload = size}, std::move(payload)};
}

}  // namespace sparsewire::comm
