// The slots of one job at a dedicated aggregator: knows where its workers' datagrams come from,
// takes those that are sealed, and sends what comes of them.
#pragma once

#include <memory>
#include <vector>

#include "net/udp/udp_socket.hpp"
#include "proto/slots/aggregator.hpp"
#include "wire/agreement.hpp"
#include "wire/tag.hpp"

namespace sparsewire::comm {

// What a job's datagrams are known by; without a key it sends none.
struct DatagramSeal {
  std::uint32_t epoch = 0;
  std::shared_ptr<const wire::TagKey> key{};
};

class JobSlots {
 public:
  JobSlots(std::uint64_t job, std::uint32_t workers, DatagramSeal seal)
      : job_(job), seal_(std::move(seal)), addresses_(workers) {}

  // What it takes once it has begun.
  std::size_t memory_needed(const wire::Topology& topology) const;
  // From here on it takes contributions, and not only greetings.
  void begin(const wire::Topology& topology);

  // Takes one datagram of the job, and commits the answers to the socket. What is not sealed, of
  // another epoch, or from elsewhere than its worker greeted from, is counted and dropped.
  void on_datagram(std::span<std::byte> data, const net::Address& from, net::UdpSocket& socket);

  std::size_t memory() const { return slots_ ? slots_->memory() : 0; }
  // Of these `rejected` counts what did not even get to the slots, too.
  proto::SlotAggregatorCounters counters() const;

 private:
  proto::SlotPool pool_of(const wire::Topology& topology) const;
  void greet(const wire::DatagramHeader& hello, std::span<std::byte> data, const net::Address& from,
             net::UdpSocket& socket);
  void send(const proto::SlotAggregator::Outgoing& outgoing, net::UdpSocket& socket) const;

  const std::uint64_t job_;
  const DatagramSeal seal_;
  std::vector<net::Address> addresses_;  // by worker; none of a worker that has not greeted
  std::unique_ptr<proto::SlotAggregator> slots_;
  std::vector<proto::SlotAggregator::Outgoing> outbox_;
  std::uint64_t rejected_ = 0;
};

}  // namespace sparsewire::comm
