// Slots whose rounds are about to wrap around: their numbers have 32 bits.
#pragma once

#include "proto/slots/aggregator.hpp"
#include "proto/slots/worker.hpp"

namespace sparsewire::test {

// Rounds that are left.
inline constexpr std::uint32_t kAlmostWrapped = UINT32_MAX - 20;

class LateWorker : public proto::SlotWorker {
 public:
  LateWorker(const proto::SlotPool& pool, std::uint16_t worker) : SlotWorker(pool, worker) {
    for (Slot& slot : slots_) slot.round = kAlmostWrapped;
  }
};

class LateAggregator : public proto::SlotAggregator {
 public:
  explicit LateAggregator(const proto::SlotPool& pool, std::optional<std::uint16_t> of_parent = {})
      : SlotAggregator(pool, of_parent) {
    for (Slot& slot : slots_) {
      slot.rounds[kAlmostWrapped % 2].header.round = kAlmostWrapped - 2;
      slot.rounds[(kAlmostWrapped + 1) % 2].header.round = kAlmostWrapped - 1;
    }
  }
};

}  // namespace sparsewire::test
