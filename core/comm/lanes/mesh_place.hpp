// A process's place among the peers of its mesh, and how its lanes have a peer connected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "comm/progress/memory_share.hpp"
#include "proto/liveness/pulse.hpp"

namespace sparsewire::comm {

// What all lanes of a mesh have in common: this process's place, and settings.
struct MeshPlace {
  std::uint32_t peers = 1;                      // ranks, including this one, or aggregators
  Rank rank = 0;                                // among ranks
  bool dedicated = false;                       // the peers are aggregators
  bool has_losses = false;                      // datagrams go beside; packets may be lost
  proto::Milliseconds patience{30'000};         // time without a sign of life until a peer is lost
  proto::Milliseconds start_patience{300'000};  // time until a group that others have must be here
  MemoryShare share{};
  std::vector<std::uint32_t> processors{};  // of each lane; empty: the system chooses

  bool is_self(std::uint32_t peer) const { return !dedicated && static_cast<Rank>(peer) == rank; }
  bool is_alone() const { return !dedicated && peers == 1; }
  std::string who() const { return "rank " + std::to_string(rank); }
};

// Called by the thread that has a lane's turn, or that makes the lane.
class MeshListener {
 public:
  virtual ~MeshListener() = default;
  // A peer must be connected on every lane.
  virtual void on_asked(std::uint32_t peer) = 0;
};

}  // namespace sparsewire::comm
