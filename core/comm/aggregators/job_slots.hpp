// The slots of one job at a dedicated aggregator: knows the addresses of its workers, takes their
// sealed datagrams, and sends the answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/slots/datagram_place.hpp"
#include "comm/slots/worker_flows.hpp"
#include "net/udp/udp_socket.hpp"
#include "proto/slots/aggregator.hpp"
#include "wire/agreement.hpp"
#include "wire/greeting.hpp"
#include "wire/tag.hpp"

namespace sparsewire::comm {

// Datagrams that may wait to be sent: all slots' results of about two jobs.
inline constexpr std::size_t kDatagramsQueued = 1024;

// The seal of a job's datagrams at one aggregator. Without keys the job sends none.
struct DatagramSeal {
  std::uint32_t epoch = 0;
  std::shared_ptr<const wire::WayKeys> keys{};
};

class JobSlots {
 public:
  // The aggregator above a rack's aggregator.
  struct Parent {
    net::UdpSocket* socket;                          // connected
    std::shared_ptr<const wire::WayKeys> keys;       // of its workers
    std::function<bool(std::size_t bytes)> reserve;  // whether there is so much memory
  };

  JobSlots(std::uint64_t job, std::uint32_t world_size, DatagramSeal seal,
           std::optional<Parent> parent = {})
      : job_(job), world_size_(world_size), seal_(std::move(seal)), parent_(std::move(parent)) {}

  // The most memory that it takes once it has begun.
  std::size_t memory_needed(const wire::Topology& topology) const;
  // From here on it takes contributions, and not only greetings. With a parent it begins by itself,
  // with the first greeting.
  void begin(const wire::Topology& topology);

  // Takes one datagram of the job, and commits the answers to the socket. A datagram that is not
  // sealed, is of another epoch, or does not come from the address of its flow's last greeting is
  // counted and dropped.
  void on_datagram(std::span<std::byte> data, const net::Address& from, net::UdpSocket& socket);
  // The same for a datagram from the parent. The answers for workers go to the socket.
  void on_parent(std::span<std::byte> data, net::UdpSocket& socket);

  std::size_t memory() const { return slots_ ? slots_->memory() : 0; }
  // `rejected` also counts datagrams that did not get to the slots.
  proto::SlotAggregatorCounters counters() const;

 private:
  proto::SlotPool pool(const wire::Greeting& greeting) const;
  bool is_mine(const Result<wire::Datagram>& datagram, std::span<const std::byte> data,
               const wire::TagKey& key) const;
  void begin(const wire::Greeting& greeting);
  bool agrees(const wire::Greeting& greeting);
  void settle(const wire::Greeting& greeting);
  void greet(const wire::Datagram& hello, std::size_t size, const net::Address& from,
             net::UdpSocket& socket);
  void greet_parent(std::size_t size);
  void on_welcome(const wire::DatagramHeader& welcome, std::size_t size, net::UdpSocket& socket);
  void answer(const WorkerFlows::Waiting& hello, net::UdpSocket& socket) const;
  void say(const wire::DatagramHeader& header, const wire::Greeting& greeting, std::size_t size,
           const wire::TagKey& key, net::UdpSocket& socket, const net::Address& to) const;
  void send_all(std::uint16_t slot, net::UdpSocket& socket);
  void send(const proto::SlotAggregator::Outgoing& outgoing, std::uint16_t slot,
            net::UdpSocket& socket) const;

  const std::uint64_t job_;
  const std::uint32_t world_size_;
  const DatagramSeal seal_;
  const std::optional<Parent> parent_;
  std::optional<wire::Greeting> greeting_;  // the first, which all others must repeat
  WorkerFlows flows_;                       // without workers before the first greeting
  std::unique_ptr<proto::SlotAggregator> slots_;
  std::vector<proto::SlotAggregator::Outgoing> outbox_;
  std::uint64_t said_ = 0;              // greetings to the parent
  DType parent_adds_ = DType::float32;  // what a welcome says
  std::uint64_t rejected_ = 0;
};

}  // namespace sparsewire::comm
