// A job whose ranks send datagrams to aggregators, all of it in one process; and what strangers can
// send there.
#pragma once

#include <numeric>
#include <optional>
#include <string>

#include "cluster.hpp"
#include "udp_sockets.hpp"
#include "wire/datagram.hpp"
#include "wire/greeting.hpp"

namespace sparsewire::test {

// Aggregators with a socket for datagrams each, of which tests keep a copy.
class SlotAggregators {
 public:
  explicit SlotAggregators(std::size_t count, const comm::AggregatorLimits& limits = {},
                           const std::optional<net::Disturbance>& disturbance = {}) {
    for (std::size_t i = 0; i < count; ++i) {
      Socket socket = bound_socket(AF_INET);
      addresses_.push_back(address_of(socket.fd()));
      copies_.push_back(socket.duplicate());
      all_.emplace_back(limits, socket.release(), disturbance);
    }
  }

  std::deque<comm::Aggregator>& all() { return all_; }
  comm::Aggregator& operator[](std::size_t index) { return all_[index]; }
  std::size_t size() const { return addresses_.size(); }
  const net::Address& address(std::size_t index) const { return addresses_[index]; }
  // Sends from the aggregator's own address.
  const Socket& copy(std::size_t index) const { return copies_[index]; }
  void go() { all_.clear(); }

  proto::SlotAggregatorCounters counters(std::uint64_t job, std::size_t index = 0) const {
    const auto slots = all_[index].stats().slots;
    const auto at = slots.find(job);
    return at == slots.end() ? proto::SlotAggregatorCounters{} : at->second;
  }

 private:
  std::vector<net::Address> addresses_;
  std::vector<Socket> copies_;
  std::deque<comm::Aggregator> all_;
};

struct SlotSettings {
  std::uint64_t job = 1;
  proto::Arithmetic arithmetic = proto::Arithmetic::exact;
  std::optional<net::Disturbance> disturbance = {};
  std::uint32_t datagram_bytes = 1472;
  std::chrono::milliseconds peer_timeout{30'000};
  std::uint16_t flows = 1;
  // Nothing of this flow of rank 0 passes once it has greeted.
  std::optional<std::uint16_t> blocked = {};
};

inline wire::TagKey key_of(std::uint64_t number, std::uint32_t datagram_bytes) {
  Buffer key(wire::kTagKeyBytes);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(number * 37 + i);
  return {key, datagram_bytes};
}

// Of a job at one of its aggregators.
inline wire::WayKeys keys_of(std::uint64_t job, std::size_t aggregator,
                             std::uint32_t datagram_bytes) {
  const std::uint64_t number = 2 * (job + 16 * aggregator);
  return {key_of(number, datagram_bytes), key_of(number + 1, datagram_bytes)};
}

// A job, joined and greeted: its communicators, and what its datagrams are known by.
class SlotJob {
 public:
  static constexpr std::uint32_t kEpoch = 5;

  SlotJob(SlotAggregators& aggregators, std::uint32_t world_size, const SlotSettings& settings = {})
      : settings_(settings),
        keys_(keys_at(aggregators.size())),
        cluster_(joined(aggregators, world_size)) {
    std::vector<std::shared_ptr<comm::DatagramPlace>> places;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      places.push_back(place_of(aggregators, rank));
      for (const auto& connections : cluster_.sockets_of(static_cast<Rank>(rank))) {
        for (const Socket& socket : connections) connections_.push_back(socket.duplicate());
      }
    }
    cluster_.send_datagrams(std::move(places));
    cluster_.start_but(kNoRank);
  }

  Cluster& cluster() { return cluster_; }
  const wire::WayKeys& keys(std::size_t aggregator = 0) const { return keys_[aggregator]; }
  // Where a rank's datagrams come from, those to the first aggregator.
  const net::Address& address(std::size_t rank, std::size_t flow = 0) const {
    return addresses_[rank][flow];
  }

  // A greeting of a rank, and the largest number that one had before the job began.
  Buffer hello(std::uint16_t rank, std::uint64_t number) const {
    return hello_of(rank, 0, number, keys().up);
  }
  std::uint64_t greeted() const { return greeted_; }

  // Ends a rank's connections, as its death would; the rank itself goes on.
  void cut(std::size_t rank) {
    const std::size_t each = connections_.size() / cluster_.size();
    for (std::size_t i = rank * each; i < (rank + 1) * each; ++i) {
      ::shutdown(connections_[i].fd(), SHUT_RDWR);
    }
  }

  std::uint64_t figure(comm::SlotFigure figure, std::size_t rank) {
    return cluster_[rank].stats().slots[static_cast<std::size_t>(figure)];
  }

 private:
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(cluster_.size()); }

  Cluster joined(SlotAggregators& aggregators, std::uint32_t world_size) {
    auto topology = topology_of(world_size, 1, static_cast<std::uint32_t>(aggregators.size()));
    topology.datagram_bytes = settings_.datagram_bytes;
    topology.peer_timeout_ms = static_cast<std::uint32_t>(settings_.peer_timeout.count());
    std::vector<comm::DatagramSeal> seals;
    for (const wire::WayKeys& keys : keys_) {
      seals.push_back({kEpoch, std::make_shared<wire::WayKeys>(keys)});
    }
    return {topology, true, dedicated_mesh(topology, settings_.job, aggregators.all(), seals)};
  }

  std::vector<wire::WayKeys> keys_at(std::size_t aggregators) const {
    std::vector<wire::WayKeys> keys;
    for (std::size_t i = 0; i < aggregators; ++i) {
      keys.push_back(keys_of(settings_.job, i, settings_.datagram_bytes));
    }
    return keys;
  }

  std::shared_ptr<comm::DatagramPlace> place_of(SlotAggregators& aggregators, std::uint32_t rank) {
    std::vector<std::vector<int>> sockets(settings_.flows);
    addresses_.emplace_back();
    for (std::uint16_t flow = 0; flow < settings_.flows; ++flow) {
      for (std::size_t i = 0; i < aggregators.size(); ++i) {
        Socket socket = bound_socket(AF_INET);
        connect_to(socket, aggregators.address(i));
        greet(socket, rank, flow, keys_[i]);
        if (i == 0) addresses_.back().push_back(address_of(socket.fd()));
        if (rank == 0 && flow == settings_.blocked) connect_to(socket, address_of(nobody_.fd()));
        sockets[flow].push_back(socket.release());
      }
    }
    return std::make_shared<comm::DatagramPlace>(
        comm::DatagramPlace{.sockets = net::Sockets(std::move(sockets)),
                            .job = settings_.job,
                            .epoch = kEpoch,
                            .keys = keys_,
                            .arithmetic = settings_.arithmetic,
                            .disturbance = settings_.disturbance,
                            .workers = static_cast<std::uint16_t>(ranks()),
                            .worker = static_cast<std::uint16_t>(rank),
                            .greeted = greeted_});
  }

  Buffer hello_of(std::uint16_t rank, std::uint16_t flow, std::uint64_t number,
                  const wire::TagKey& key) const {
    Buffer hello(64);
    wire::encode_greeting({.kind = wire::DatagramKind::hello,
                           .worker = rank,
                           .slot = wire::first_slot_of(flow),
                           .columns = 0,
                           .job = settings_.job,
                           .epoch = kEpoch,
                           .round = number},
                          {.workers = ranks(),
                           .world_size = ranks(),
                           .datagram_bytes = settings_.datagram_bytes,
                           .flows = settings_.flows},
                          hello);
    key.seal(hello);
    return hello;
  }

  // Until the aggregator answers, which may not have heard of the job yet.
  void greet(const Socket& socket, std::uint32_t rank, std::uint16_t flow,
             const wire::WayKeys& keys) {
    Buffer answer(64);
    wait_until([&] {
      const Buffer hello = hello_of(static_cast<std::uint16_t>(rank), flow, ++greeted_, keys.up);
      (void)::send(socket.fd(), hello.data(), hello.size(), 0);
      pollfd end{.fd = socket.fd(), .events = POLLIN, .revents = 0};
      ::poll(&end, 1, 20);
      return ::recv(socket.fd(), answer.data(), answer.size(), 0) == 64;
    });
    REQUIRE(wire::decode_datagram(answer)->header.kind == wire::DatagramKind::welcome);
    REQUIRE(keys.down.is_sealed(answer));
  }

  const SlotSettings settings_;
  const std::vector<wire::WayKeys> keys_;             // by aggregator
  std::vector<std::vector<net::Address>> addresses_;  // by rank and flow, to the first aggregator
  const Socket nobody_ = bound_socket(AF_INET);
  std::vector<Socket> connections_;  // copies, rank by rank
  std::uint64_t greeted_ = 0;        // the number of the last greeting
  Cluster cluster_;
};

inline void send_to(const Socket& socket, const net::Address& to, std::span<const std::byte> data) {
  const net::SystemAddress address = to.system();
  (void)::sendto(socket.fd(), data.data(), data.size(), MSG_DONTWAIT, &address.generic,
                 address.size);
}

// --- Operations of all ranks ---

inline constexpr wire::Descriptor kLargeSum{DType::float32, ReduceOp::sum, 200'000};

using Operations = std::vector<OperationPtr>;

inline Operations submit_all(Cluster& cluster, Collective& collective) {
  Operations operations;
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    operations.push_back(submit(cluster, collective, rank));
  }
  return operations;
}

inline void check_all_done(const Operations& operations, const Collective& collective) {
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    CAPTURE(rank);
    check_done(operations[rank], collective, rank);
  }
}

inline Collective large_collective(std::size_t ranks, Random& random, Density density = {1}) {
  return random_collective(kLargeSum, ranks, 256, density, random);
}

}  // namespace sparsewire::test
