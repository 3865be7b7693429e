// How the memory of a mesh is dealt out to its connections: for rings, for staging, and for queues.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "net/shm/ring.hpp"
#include "net/staging.hpp"
#include "proto/stream/owner/owner.hpp"

namespace sparsewire::comm {

inline constexpr std::size_t kDefaultMemory = std::size_t{64} << 20;

// Bytes that may wait for one rank before its senders pause; and the same at a dedicated
// aggregator, where many jobs share the memory.
inline constexpr std::size_t kMaxQueuedBytes = 8u << 20;
inline constexpr std::size_t kMaxQueuedForWorker = 2u << 20;

inline constexpr std::size_t kLeastBurstBytes = 256u << 10;

struct MemoryShare {
  std::size_t ring = net::kMaxRingBytes;  // of each ring
  std::size_t staging =
      net::kMaxStagingBytes;                // of each connection that has read a part of a frame
  std::size_t queued = kDefaultMemory / 2;  // by all connections of a lane together: see Agenda

  // Bytes of results to make at once, which go to all of `ranks` ranks: half of what may be queued
  // for them, but at least a chunk.
  std::size_t burst(std::size_t ranks) const {
    return std::clamp(queued / (2 * ranks), kLeastBurstBytes, proto::kBurstBytes);
  }

  // Shares of `memory` bytes for `lanes` lanes, each with `peers` peers, of which `neighbours`
  // share memory with this process: half is for queues, a quarter for rings, and an eighth for
  // staging. The rest is left to owners.
  static MemoryShare of(std::size_t memory, std::size_t lanes, std::size_t peers,
                        std::size_t neighbours) {
    const auto each = [&](std::size_t part, std::size_t users, std::size_t least,
                          std::size_t most) {
      const std::size_t bytes = memory / part / std::max<std::size_t>(lanes * users, 1);
      return std::bit_floor(std::clamp(bytes, least, most));
    };
    return {.ring = each(4, neighbours, net::kMinRingBytes, net::kMaxRingBytes),
            .staging = each(8, peers, net::kMinStagingBytes, net::kMaxStagingBytes),
            .queued = std::max<std::size_t>(memory / 2 / lanes, 1)};
  }
};

}  // namespace sparsewire::comm
