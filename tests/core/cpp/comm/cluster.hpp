// All ranks of a communicator inside one process, joined over the loopback interface; and ways for
// a rank to behave badly. Every wait is bounded.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/aggregators/aggregator.hpp"
#include "comm/communicator.hpp"
#include "comm/lanes/lane.hpp"
#include "sockets.hpp"
#include "tensors.hpp"

namespace sparsewire::test {

inline constexpr std::chrono::seconds kPatience{60};

// sockets[lane][owner] of one rank.
using Sockets = std::vector<std::vector<Socket>>;
using OperationPtr = std::shared_ptr<comm::Operation>;

inline std::vector<std::vector<int>> released(Sockets& sockets) {
  std::vector<std::vector<int>> fds;
  for (auto& lane : sockets) {
    fds.emplace_back();
    for (Socket& socket : lane) fds.back().push_back(socket.release());
  }
  return fds;
}

inline wire::Topology topology_of(std::uint32_t world_size, std::uint32_t lanes,
                                  std::uint32_t owners) {
  return {.world_size = world_size,
          .lanes = lanes,
          .owners = owners,
          .block = 256,
          .window_bytes = 1u << 20};
}

// Every rank joined to every other, per lane: those of one host through its memory. Without hosts,
// all over TCP.
inline std::vector<Sockets> colocated_mesh(const wire::Topology& topology,
                                           const std::vector<std::uint32_t>& hosts = {}) {
  std::vector<Sockets> mesh(topology.world_size);
  for (Sockets& sockets : mesh) {
    sockets.resize(topology.lanes);
    for (auto& lane : sockets) lane.resize(topology.world_size);
  }
  for (std::uint32_t lane = 0; lane < topology.lanes; ++lane) {
    for (std::uint32_t a = 0; a < topology.world_size; ++a) {
      for (std::uint32_t b = a + 1; b < topology.world_size; ++b) {
        const bool are_neighbours = !hosts.empty() && hosts[a] == hosts[b];
        SocketPair pair = are_neighbours ? local_pair() : connected_pair();
        mesh[a][lane][b] = std::move(pair.a);
        mesh[b][lane][a] = std::move(pair.b);
      }
    }
  }
  return mesh;
}

// Every rank joined to every aggregator, per lane. The seals are by aggregator, or none.
inline std::vector<Sockets> dedicated_mesh(const wire::Topology& topology, std::uint64_t job,
                                           std::deque<comm::Aggregator>& aggregators,
                                           const std::vector<comm::DatagramSeal>& seals = {}) {
  std::vector<Sockets> mesh(topology.world_size);
  for (std::uint32_t rank = 0; rank < topology.world_size; ++rank) {
    for (std::uint32_t lane = 0; lane < topology.lanes; ++lane) {
      mesh[rank].emplace_back();
      for (std::size_t i = 0; i < aggregators.size(); ++i) {
        SocketPair pair = connected_pair();
        mesh[rank][lane].push_back(std::move(pair.a));
        aggregators[i].add_worker({job, topology.world_size, static_cast<Rank>(rank), lane},
                                  pair.b.release(),
                                  seals.empty() ? comm::DatagramSeal{} : seals[i]);
      }
    }
  }
  return mesh;
}

// Communicators of some or all ranks.
class Cluster {
 public:
  Cluster(const wire::Topology& topology, bool dedicated, std::vector<Sockets> mesh)
      : topology_(topology), dedicated_(dedicated), mesh_(std::move(mesh)) {
    communicators_.resize(mesh_.size());
  }

  static Cluster colocated(std::uint32_t world_size, std::uint32_t lanes) {
    return colocated_but(world_size, lanes, kNoRank);
  }

  // One rank for each entry, which names its host.
  static Cluster on_hosts(const std::vector<std::uint32_t>& hosts, std::uint32_t lanes,
                          Rank absent = kNoRank) {
    const auto world_size = static_cast<std::uint32_t>(hosts.size());
    const wire::Topology topology = topology_of(world_size, lanes, world_size);
    Cluster cluster(topology, false, colocated_mesh(topology, hosts));
    cluster.hosts_ = proto::Hosts(hosts);
    cluster.start_but(absent);
    return cluster;
  }

  // Leaves a rank's sockets to the test, in sockets_of().
  static Cluster colocated_but(std::uint32_t world_size, std::uint32_t lanes, Rank absent) {
    const wire::Topology topology = topology_of(world_size, lanes, world_size);
    Cluster cluster(topology, false, colocated_mesh(topology));
    cluster.start_but(absent);
    return cluster;
  }

  void start_but(Rank absent) {
    for (std::size_t rank = 0; rank < mesh_.size(); ++rank) {
      if (static_cast<Rank>(rank) == absent) continue;
      communicators_[rank] = std::make_unique<comm::Communicator>(
          topology_, static_cast<Rank>(rank), dedicated_, released(mesh_[rank]), hosts_,
          rank < datagrams_.size() ? datagrams_[rank] : nullptr,
          rank < timelines_.size() ? timelines_[rank] : nullptr);
    }
  }

  // Where each rank's datagrams go; before it starts.
  void send_datagrams(std::vector<std::shared_ptr<comm::DatagramPlace>> places) {
    datagrams_ = std::move(places);
  }

  // Where each rank notes what it does; before it starts.
  void note_in(std::vector<std::shared_ptr<comm::Timeline>> timelines) {
    timelines_ = std::move(timelines);
  }

  comm::Communicator& operator[](std::size_t rank) { return *communicators_[rank]; }
  std::size_t size() const { return communicators_.size(); }
  const wire::Topology& topology() const { return topology_; }
  Sockets& sockets_of(Rank rank) { return mesh_[static_cast<std::size_t>(rank)]; }
  void destroy(std::size_t rank) { communicators_[rank].reset(); }

  // The ranks that have a communicator.
  std::vector<std::size_t> present() const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
      if (communicators_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  // Calls visit(rank) for all ranks at once, each in a thread of its own.
  template <typename Visit>
  void at_once(Visit visit) {
    std::vector<std::thread> threads;
    for (const std::size_t rank : present()) threads.emplace_back([=] { visit(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  void close() {
    at_once([this](std::size_t rank) { communicators_[rank]->close(kPatience); });
  }

 private:
  wire::Topology topology_;
  bool dedicated_;
  proto::Hosts hosts_;
  std::vector<Sockets> mesh_;
  std::vector<std::shared_ptr<comm::DatagramPlace>> datagrams_;  // by rank, or none
  std::vector<std::shared_ptr<comm::Timeline>> timelines_;       // by rank, or none
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;
};

// A rank that never says a word about its own end, as one whose process or machine dies.
class MuteRank final : public comm::LaneListener {
 public:
  MuteRank(const wire::Topology& topology, Rank rank, bool dedicated, Sockets& sockets)
      : topology_(topology), is_dedicated_(dedicated) {
    for (const auto& lane : sockets) {
      for (const Socket& socket : lane) sockets_.push_back(socket.duplicate());
    }
    mesh_ = std::make_unique<comm::Mesh>(
        comm::MeshPlace{.peers = topology.owners,
                        .rank = rank,
                        .dedicated = dedicated,
                        .patience = proto::Milliseconds{topology.peer_timeout_ms}},
        released(sockets));
    std::vector<std::uint32_t> members(topology.owners);
    std::iota(members.begin(), members.end(), 0u);
    for (std::uint32_t lane = 0; lane < mesh_->lanes(); ++lane) {
      lanes_.push_back(std::make_shared<comm::LaneGroup>(
          comm::LanePlace{topology, lane, rank, dedicated}, 0, members, mesh_->lane(lane), *this));
      mesh_->lane(lane).join(lanes_.back());
    }
  }
  ~MuteRank() override {
    for (const auto& lane : lanes_) lane->break_off({ErrorCode::closed, kNoRank, ""});
    for (const auto& lane : lanes_) lane->leave(0, std::chrono::seconds{0});
    for (const auto& lane : lanes_) lane->await_end();
  }

  void submit(std::uint64_t seq, const comm::Operation::Arguments& arguments) {
    const auto operation = std::make_shared<comm::Operation>(arguments, topology_);
    operation->issue(seq);
    operation->open_stream();
    if (!is_dedicated_) lanes_.front()->introduce(operation);
    for (const auto& lane : lanes_) lane->submit(operation, comm::ProgressThread::Wake::now);
  }

  void die() {
    for (const Socket& socket : sockets_) {
      if (socket.fd() >= 0) ::shutdown(socket.fd(), SHUT_RDWR);
    }
  }

  void operation_left(std::uint64_t) override {}
  void operation_failed(std::uint64_t, Error) override {}
  void operation_chosen(std::uint64_t, proto::Route, const Order&) override {}
  void peer_silent(const comm::Silence&) override {}
  void datagrams_troubled(const std::string&) override {}
  void broken(Error) override {}

 private:
  wire::Topology topology_;
  bool is_dedicated_;
  std::vector<Socket> sockets_;
  std::unique_ptr<comm::Mesh> mesh_;
  std::vector<std::shared_ptr<comm::LaneGroup>> lanes_;
};

// For what comes about soon, but not at once.
template <typename Condition>
void wait_until(Condition holds) {
  const auto deadline = comm::Clock::now() + kPatience;
  while (!holds()) {
    REQUIRE(comm::Clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

// --- Frames ---

// As raw bytes, of a peer that is none of ours.
inline void send(const Socket& socket, const wire::Message& message) {
  Buffer bytes(wire::kHeaderBytes);
  wire::encode(message.header, std::span(bytes).first<wire::kHeaderBytes>());
  const auto payload = message.payload.view();
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  REQUIRE(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

// --- Operations ---

inline comm::Operation::Arguments arguments_of(Collective& collective, std::size_t rank) {
  RankTensor& tensor = collective.ranks[rank];
  return {tensor.source(), tensor.out(), {.descriptor = collective.descriptor}};
}

inline OperationPtr submit(Cluster& cluster, Collective& collective, std::size_t rank) {
  return cluster[rank].submit(arguments_of(collective, rank));
}

// From the main thread only: it gives up the test where nothing ends.
inline Status outcome(const OperationPtr& operation) {
  REQUIRE(operation->wait(kPatience));
  return operation->failure();
}

inline void check_done(const OperationPtr& operation, const Collective& collective,
                       std::size_t rank) {
  const Status failure = outcome(operation);
  REQUIRE_MESSAGE(!failure, (failure ? failure->message : ""));
  REQUIRE((collective.ranks[rank].result() == collective.expected));
  REQUIRE(collective.ranks[rank].source_is_untouched());
}

inline void check_failed(const Status& failure, ErrorCode code, Rank rank) {
  REQUIRE(failure);
  CAPTURE(failure->message);
  CHECK(failure->code == code);
  CHECK(failure->rank == rank);
}

// One all_reduce on all ranks that are there, from beginning to end.
inline void check_works(Cluster& cluster, const wire::Descriptor& descriptor, Random& random) {
  Collective collective = random_collective(descriptor, cluster.size(), 256, {0.5}, random);
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    operations.push_back(submit(cluster, collective, rank));
  }
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    check_done(operations[rank], collective, rank);
  }
}

}  // namespace sparsewire::test
