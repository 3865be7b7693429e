// The place of a communicator's datagrams: the sockets to each of its aggregators, and the keys
// that seal them.
#pragma once

#include <optional>
#include <vector>

#include "comm/progress/progress_thread.hpp"
#include "net/connection.hpp"
#include "net/udp/disturbance.hpp"
#include "net/udp/outbox.hpp"
#include "proto/slots/pool.hpp"
#include "wire/agreement.hpp"
#include "wire/greeting.hpp"
#include "wire/tag.hpp"

namespace sparsewire::comm {

// Slots of a job at one aggregator. More of them would overflow the queues of slow devices, fewer
// leave a fast link idle.
inline constexpr std::uint16_t kSlots = 128;

// Datagrams of one message arrive together. If the aggregator is in the kernel, they also wait for
// each other's sums. A long message saves its sender system calls, but costs all workers the time
// that its last datagram takes.
inline constexpr std::size_t kMostInMessageToKernel = 8;

inline proto::Microseconds microseconds_of(Clock::time_point now) {
  return std::chrono::duration_cast<proto::Microseconds>(now.time_since_epoch());
}

struct DatagramPlace {
  net::Sockets sockets;  // connected, by flow (in place of lanes) and aggregator
  std::uint64_t job;
  std::uint32_t epoch;
  std::vector<wire::WayKeys> keys;  // by aggregator
  proto::Arithmetic arithmetic;
  std::optional<net::Disturbance> disturbance;
  std::uint16_t workers;      // at each aggregator: ranks of the job, or of the rack
  std::uint16_t worker;       // this rank's number among them
  bool in_kernel = false;     // Some aggregator adds up in its kernel.
  std::uint32_t rack = 0;     // which of the parent's workers the aggregator is
  std::uint32_t racks = 1;    // and how many these are
  std::uint64_t greeted = 0;  // the largest number that a greeting had so far
  std::uint16_t block = 0;    // of the answer that greetings ask of a kernel; 0: they ask a process

  std::uint32_t flows() const { return static_cast<std::uint32_t>(sockets.lanes()); }

  wire::Greeting greeting(const wire::Topology& topology) const {
    return {.workers = workers,
            .world_size = topology.world_size,
            .rack = rack,
            .racks = racks,
            .datagram_bytes = topology.datagram_bytes,
            .flows = flows()};
  }

  std::size_t most_in_message() const {
    return in_kernel ? kMostInMessageToKernel : net::kMostSegments;
  }
  proto::SlotPool pool(const wire::Topology& topology) const {
    return {.slots = kSlots,
            .workers = workers,
            .datagram_bytes = topology.datagram_bytes,
            .block = topology.block,
            .job = job,
            .epoch = epoch,
            .world_size = topology.world_size};
  }
};

}  // namespace sparsewire::comm
