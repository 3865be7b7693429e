// Slots that are about to pass round 2^32. Numbers of rounds have 64 bits, and never come back.
#pragma once

#include "proto/slots/aggregator.hpp"
#include "proto/slots/worker.hpp"

namespace sparsewire::test {

// Rounds that are left.
inline constexpr std::uint64_t kAlmostWrapped = UINT32_MAX - 20;

class LateWorker : public proto::SlotWorker {
 public:
  LateWorker(const proto::SlotPool& pool, std::uint16_t worker) : SlotWorker(pool, worker) {
    for (Slot& slot : slots_) slot.round = kAlmostWrapped;
  }
};

class LateAggregator : public proto::SlotAggregator {
 public:
  explicit LateAggregator(const proto::SlotPool& pool, std::optional<std::uint16_t> of_parent = {})
      : LateAggregator(kAlmostWrapped, pool, of_parent) {}
  // The first round that it takes.
  LateAggregator(std::uint64_t first, const proto::SlotPool& pool,
                 std::optional<std::uint16_t> of_parent = {})
      : SlotAggregator(pool, of_parent) {
    for (Slot& slot : slots_) {
      slot.rounds[first % 2].header.round = first - 2;
      slot.rounds[(first + 1) % 2].header.round = first - 1;
    }
  }
};

}  // namespace sparsewire::test
