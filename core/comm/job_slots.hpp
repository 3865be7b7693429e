// The slots of one job at a dedicated aggregator: knows where its workers' datagrams come from,
// takes those that are sealed, and sends what comes of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "net/udp/udp_socket.hpp"
#include "proto/slots/aggregator.hpp"
#include "wire/agreement.hpp"
#include "wire/greeting.hpp"
#include "wire/tag.hpp"

namespace sparsewire::comm {

// What a job's datagrams are known by, at one aggregator; without keys it sends none.
struct DatagramSeal {
  std::uint32_t epoch = 0;
  std::shared_ptr<const wire::WayKeys> keys{};
};

class JobSlots {
 public:
  // The aggregator above, of a rack's.
  struct Parent {
    net::UdpSocket* socket;                          // connected
    std::shared_ptr<const wire::WayKeys> keys;       // of its workers
    std::function<bool(std::size_t bytes)> reserve;  // whether there is so much memory
  };

  JobSlots(std::uint64_t job, std::uint32_t world_size, DatagramSeal seal,
           std::optional<Parent> parent = {})
      : job_(job),
        seal_(std::move(seal)),
        parent_(std::move(parent)),
        addresses_(world_size),
        greeters_(world_size) {}

  // The most that it takes once it has begun.
  std::size_t memory_needed(const wire::Topology& topology) const;
  // From here on it takes contributions, and not only greetings. With a parent it begins by itself,
  // with the first greeting.
  void begin(const wire::Topology& topology);

  // Takes one datagram of the job, and commits the answers to the socket. What is not sealed, of
  // another epoch, or from elsewhere than its worker last greeted from, is counted and dropped.
  void on_datagram(std::span<std::byte> data, const net::Address& from, net::UdpSocket& socket);
  // The same of one that came from the parent; the answers for workers go to the socket.
  void on_parent(std::span<std::byte> data, net::UdpSocket& socket);

  std::size_t memory() const { return slots_ ? slots_->memory() : 0; }
  // Of these `rejected` counts what did not even get to the slots, too.
  proto::SlotAggregatorCounters counters() const;

 private:
  // A worker, as its greetings tell of it.
  struct Greeter {
    std::uint64_t number = 0;  // of the last one that was taken; 0: none so far
    net::Address before = {};  // where that one has moved it from, as long as it may move back
    std::size_t awaits = 0;    // bytes of the longest that is answered once the parent answers,
    std::uint64_t asked = 0;   // one of this number or a later one
  };

  proto::SlotPool pool(const wire::Greeting& greeting) const;
  bool is_mine(const Result<wire::Datagram>& datagram, std::span<const std::byte> data,
               const wire::TagKey& key) const;
  void begin(const wire::Greeting& greeting);
  bool agrees(const wire::Greeting& greeting);
  void greet(const wire::Datagram& hello, std::size_t size, const net::Address& from,
             net::UdpSocket& socket);
  bool seats(std::uint16_t worker, std::uint64_t number, const net::Address& from);
  void greet_parent(std::size_t size);
  void on_welcome(const wire::DatagramHeader& welcome, std::size_t size, net::UdpSocket& socket);
  void answer(std::uint16_t worker, std::size_t size, net::UdpSocket& socket) const;
  void say(const wire::DatagramHeader& header, const wire::Greeting& greeting, std::size_t size,
           const wire::TagKey& key, net::UdpSocket& socket, const net::Address& to) const;
  void send_all(net::UdpSocket& socket);
  void send(const proto::SlotAggregator::Outgoing& outgoing, net::UdpSocket& socket) const;

  const std::uint64_t job_;
  const DatagramSeal seal_;
  const std::optional<Parent> parent_;
  std::optional<wire::Greeting> greeting_;  // the first, which all others must repeat
  std::vector<net::Address> addresses_;     // by worker; none of a worker that has not greeted
  std::vector<Greeter> greeters_;           // by worker
  std::unique_ptr<proto::SlotAggregator> slots_;
  std::vector<proto::SlotAggregator::Outgoing> outbox_;
  std::uint64_t said_ = 0;              // greetings to the parent
  DType parent_adds_ = DType::float32;  // what a welcome says
  std::uint64_t rejected_ = 0;
};

}  // namespace sparsewire::comm
