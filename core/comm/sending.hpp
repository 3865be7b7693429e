// When lanes and aggregators send no more: how much may wait on one connection.
#pragma once

#include "net/tcp/connection.hpp"

namespace sparsewire::comm {

// Results that may wait for one rank before its owner pauses.
inline constexpr std::size_t kMaxQueuedBytes = 8u << 20;

// The same at a dedicated aggregator, where many jobs share the memory.
inline constexpr std::size_t kMaxQueuedForWorker = 2u << 20;

inline bool is_behind(const net::Connection& connection) {
  return connection.queued_bytes() > kMaxQueuedBytes;
}

}  // namespace sparsewire::comm
