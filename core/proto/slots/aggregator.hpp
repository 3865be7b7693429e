// The aggregator's half of the slots: adds up what the workers contribute to each round of a slot,
// and keeps the result until the round after the next, for those whom it did not reach.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/slots/pool.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {

inline constexpr std::uint16_t kEveryWorker = UINT16_MAX;

struct SlotAggregatorCounters {
  std::uint64_t contributions = 0;  // taken, each once
  std::uint64_t duplicates = 0;     // contributions that had been taken before
  std::uint64_t stale = 0;          // of a round that is over, or not yet begun
  std::uint64_t rejected = 0;       // what makes no sense
  std::uint64_t results = 0;        // rounds completed
  std::uint64_t resent = 0;         // results sent again to one worker
  std::uint64_t recalls = 0;        // sent to workers whose contribution is missing
};

class SlotAggregator {
 public:
  explicit SlotAggregator(const SlotPool& pool);

  // Not sealed; valid until the next call.
  struct Outgoing {
    std::uint16_t worker;  // or kEveryWorker
    std::span<std::byte> datagram;
  };

  // Of this job, rightly sealed, and from the address of the worker that it names. What is odd is
  // ignored, and counted. Appends to `out`.
  void on_datagram(const wire::Datagram& datagram, std::vector<Outgoing>& out);

  std::size_t memory() const;
  static std::size_t memory_needed(const SlotPool& pool);

  const SlotAggregatorCounters& counters() const;
};

}  // namespace sparsewire::proto
