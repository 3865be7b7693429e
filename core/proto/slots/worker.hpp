// The worker's half of the slots: every operation of one rank in flight at one aggregator. It
// answers every result with its own block or with an empty acknowledgement (OmniReduce's Algorithm
// 2), repeats what may be lost, and keeps to a window.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/transitions.hpp"
#include "proto/slots/pool.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {

struct SlotCounters {
  std::uint64_t datagrams = 0;        // sent, retransmissions among them
  std::uint64_t retransmissions = 0;  // of contributions that had been sent before
  std::uint64_t timeouts = 0;         // timers that ran out
  std::uint64_t recalls = 0;          // that have come
  std::uint64_t results = 0;          // taken, each once
  std::uint64_t duplicates = 0;       // results that had been taken before
  std::uint64_t stale = 0;            // what no slot waits for, any more or yet
  std::uint64_t rejected = 0;         // what makes no sense
  std::uint64_t blocks_sent = 0;
  std::uint64_t blocks_empty = 0;  // columns of datagrams without a block
  Microseconds srtt{0};            // smoothed round trip, from a contribution to its result
  Microseconds rttvar{0};
  std::uint32_t window = 0;  // datagrams that may be in flight
};

class SlotWorker {
 public:
  SlotWorker(const SlotPool& pool, std::uint16_t worker);

  // Operations go through the slots in the order of these calls, which is the same on all workers.
  // The tensor must fit (see pool.hpp).
  void begin(std::uint64_t seq, const SlotTensor& tensor);

  // Of this job and rightly sealed. What is odd is ignored, and counted.
  void on_datagram(const wire::Datagram& datagram, Microseconds now);

  // Writes the next datagram, not sealed, and returns its size; 0: none for now.
  std::size_t poll(std::span<std::byte> out, Microseconds now);

  // Whether poll() may have something.
  bool has_work(Microseconds now) const;

  // When poll() may have something by itself: some timer runs out then.
  std::optional<Microseconds> next_timer() const;

  // ErrorCode::input where a value was not finite, in fixed point: alike on all ranks.
  struct End {
    std::uint64_t seq;
    Status failure;
  };
  std::vector<End> take_ended();

  // Lets go of all tensors; nothing is sent any more.
  void drop_all();

  const SlotCounters& counters() const;
};

}  // namespace sparsewire::proto
