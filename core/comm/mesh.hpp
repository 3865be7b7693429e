// The connections of this process with the ranks of a job, or with its aggregators: one channel for
// each peer in each lane, made when it is first needed, and shared by groups of these ranks.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/lanes/mesh_place.hpp"
#include "net/connection.hpp"

namespace sparsewire::comm {

class Lane;

// A group of ranks of a mesh: its number, which no other group of the mesh has ever had, and its
// members as ranks of the mesh, in the order of their ranks in the group.
struct Group {
  std::uint32_t number = 0;
  std::vector<std::uint32_t> members;
};

class Mesh final : private MeshListener {
 public:
  // Takes over sockets[lane][peer]; -1: there is none yet.
  Mesh(const MeshPlace& place, net::Sockets sockets);
  ~Mesh() override;

  const MeshPlace& place() const { return place_; }
  std::size_t lanes() const { return lanes_.size(); }
  Lane& lane(std::size_t number) { return *lanes_[number]; }

  // --- For the thread that makes connections ---

  // Readable while there are peers to be called.
  int calls_fd() const { return calls_fd_; }
  // The peers that must be connected, on every lane. Each is returned once.
  std::vector<std::uint32_t> take_calls();
  // Notes that a peer is being called, and has to answer from now on.
  void note_call(std::uint32_t peer);
  // Takes over a connected, non-blocking socket, whatever happens.
  void adopt(std::uint32_t lane, std::uint32_t peer, int fd);
  // Notes that a peer cannot be reached.
  void give_up(std::uint32_t peer, const std::string& why);

  // Ends a group that this process, which is `rank` there, failed to join, and tells its members.
  // If no members are given, each rank that sends a frame of the group is told.
  void fail_group(const Group& group, Rank rank, const std::string& why);

  // Peers that are connected, in the lane that has the most of them.
  std::size_t connections() const;
  // Whether no connection was ever lost.
  bool is_whole() const;

  // Ends the lanes, once no group is left in them.
  void close();
  // In a forked child: closes this process's copies of the descriptors, which no peer notices.
  // Takes no lock, because a thread that held it does not exist here. The object must be neither
  // used nor destroyed after that: its threads do not exist here, either.
  void disown();

 private:
  void on_asked(std::uint32_t peer) override;

  const MeshPlace place_;
  int calls_fd_;
  std::mutex mutex_;
  std::vector<bool> is_asked_;  // by peer
  std::vector<std::uint32_t> calls_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace sparsewire::comm
