// Where a communicator's datagrams go: a socket to each of its aggregators, and what they are
// sealed with.
#pragma once

#include <optional>

#include "net/connection.hpp"
#include "net/udp/disturbance.hpp"
#include "proto/slots/pool.hpp"
#include "wire/agreement.hpp"
#include "wire/tag.hpp"

namespace sparsewire::comm {

// Slots of a job at one aggregator. More of them would overflow the queues of slow devices, fewer
// leave a fast link idle.
inline constexpr std::uint16_t kSlots = 128;

struct DatagramPlace {
  net::Sockets sockets;  // one lane: connected, by aggregator
  std::uint64_t job;
  std::uint32_t epoch;
  wire::TagKey key;
  proto::Arithmetic arithmetic;
  std::optional<net::Disturbance> disturbance;
  std::uint16_t workers;  // at each aggregator: ranks of the job, or of the rack
  std::uint16_t worker;   // this rank, among them

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
