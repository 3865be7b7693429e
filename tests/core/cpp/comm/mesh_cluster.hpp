// Meshes of all ranks of a job inside one process, whose calls a thread answers, as porters do; and
// communicators of some of their ranks.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "cluster.hpp"

namespace sparsewire::test {

class MeshCluster {
 public:
  struct Settings {
    std::uint32_t lanes = 1;
    std::chrono::milliseconds patience{30'000};
    std::chrono::milliseconds start_patience{300'000};
    std::set<std::uint32_t> impatient{};  // ranks for which start_patience holds; none for all
    std::set<std::uint32_t> dead{};       // nobody listens there
    std::set<std::uint32_t> frozen{};     // nobody answers there
    comm::MemoryShare share{};
  };

  explicit MeshCluster(std::uint32_t ranks) : MeshCluster(ranks, Settings{}) {}
  MeshCluster(std::uint32_t ranks, Settings settings) : settings_(std::move(settings)) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const bool is_patient = !settings_.impatient.empty() && !settings_.impatient.contains(rank);
      meshes_.push_back(std::make_unique<comm::Mesh>(
          comm::MeshPlace{
              .peers = ranks,
              .rank = static_cast<Rank>(rank),
              .patience = settings_.patience,
              .start_patience = is_patient ? std::chrono::minutes{5} : settings_.start_patience,
              .share = settings_.share},
          net::Sockets(std::vector(settings_.lanes, std::vector<int>(ranks, -1)))));
    }
    calls_ = std::thread([this] {
      while (!ends_) {
        answer_calls();
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
    });
  }
  ~MeshCluster() {
    ends_ = true;
    calls_.join();
  }

  comm::Mesh& operator[](std::size_t rank) { return *meshes_[rank]; }

  // The communicator of one member of a group.
  std::unique_ptr<comm::Communicator> join(std::uint32_t number,
                                           const std::vector<std::uint32_t>& members, Rank rank) {
    const auto size = static_cast<std::uint32_t>(members.size());
    wire::Topology topology = topology_of(size, settings_.lanes, size);
    topology.peer_timeout_ms = static_cast<std::uint32_t>(settings_.patience.count());
    comm::Mesh& mesh = *meshes_[members[static_cast<std::size_t>(rank)]];
    return std::make_unique<comm::Communicator>(topology, rank, mesh, comm::Group{number, members});
  }
  // Of all its members.
  std::vector<std::unique_ptr<comm::Communicator>> join_all(
      std::uint32_t number, const std::vector<std::uint32_t>& members) {
    std::vector<std::unique_ptr<comm::Communicator>> group;
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      group.push_back(join(number, members, static_cast<Rank>(rank)));
    }
    return group;
  }

  // Ends the connection of two, as a network does.
  void cut(std::uint32_t a, std::uint32_t b) {
    const std::lock_guard lock(mutex_);
    for (const Socket& socket : copies_.at({std::min(a, b), std::max(a, b)})) {
      ::shutdown(socket.fd(), SHUT_RDWR);
    }
  }

 private:
  void answer_calls() {
    for (std::uint32_t caller = 0; caller < meshes_.size(); ++caller) {
      for (const std::uint32_t peer : meshes_[caller]->take_calls()) connect(caller, peer);
    }
  }
  void connect(std::uint32_t caller, std::uint32_t peer) {
    meshes_[caller]->note_call(peer);
    if (settings_.frozen.contains(peer)) return;
    if (settings_.dead.contains(peer)) return meshes_[caller]->give_up(peer, "nobody is there");
    const std::pair pair{std::min(caller, peer), std::max(caller, peer)};
    const std::lock_guard lock(mutex_);
    if (copies_.contains(pair)) return;
    for (std::uint32_t lane = 0; lane < settings_.lanes; ++lane) {
      SocketPair sockets = connected_pair();
      copies_[pair].push_back(sockets.a.duplicate());
      meshes_[caller]->adopt(lane, peer, sockets.a.release());
      meshes_[peer]->adopt(lane, caller, sockets.b.release());
    }
  }

  const Settings settings_;
  std::vector<std::unique_ptr<comm::Mesh>> meshes_;
  std::mutex mutex_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Socket>> copies_;
  std::atomic<bool> ends_ = false;
  std::thread calls_;
};

using Group = std::vector<std::unique_ptr<comm::Communicator>>;

// One all_reduce on all members.
inline void check_works(const Group& group, const wire::Descriptor& descriptor, Random& random) {
  Collective collective = random_collective(descriptor, group.size(), 256, {0.5}, random);
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    operations.push_back(group[rank]->submit(arguments_of(collective, rank)));
  }
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    check_done(operations[rank], collective, rank);
  }
}

}  // namespace sparsewire::test
