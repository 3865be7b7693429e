// The hosts that ranks share. If there are several, the ranks of a host send their values to one
// rank there, the owner's deputy. It adds them up and is one worker for all of them, so that each
// value crosses the network once for a host.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace sparsewire::proto {

class Hosts {
 public:
  // `host_of` numbers each rank's host; if there is none, or one host, or a host for each rank, all
  // is flat, and every rank speaks for itself.
  Hosts() = default;
  explicit Hosts(std::vector<std::uint32_t> host_of);

  bool is_flat() const { return ranks_.empty(); }
  bool share(Rank a, Rank b) const { return !is_flat() && host(a) == host(b); }

  // All ranks of a rank's host, ascending; only if all is not flat.
  const std::vector<Rank>& ranks_beside(Rank rank) const { return ranks_[host(rank)]; }

  // Whether a rank's host has a deputy for each owner. It does if the rank is not alone there.
  bool has_deputies(Rank rank) const { return !is_flat() && ranks_beside(rank).size() > 1; }

  // The rank that speaks to the owner for a rank: its host's deputy, or the rank itself. The
  // owner's deputies have the owner's place in their hosts, so that all ranks are equally busy, and
  // on equal hosts each rank talks to one rank of every other host.
  Rank speaker(Rank rank, std::uint32_t owner) const;

  // How many speakers an owner has: as many as hosts, or as ranks if all is flat.
  std::uint64_t count(std::uint64_t world_size) const {
    return is_flat() ? world_size : ranks_.size();
  }

  // All speakers to an owner, in the order of their hosts, or of ranks if all is flat.
  std::vector<Rank> speakers(std::uint32_t owner, std::uint32_t world_size) const;

 private:
  std::size_t host(Rank rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  std::vector<std::uint32_t> host_of_;
  std::vector<std::uint32_t> place_of_;   // of each rank in its host
  std::vector<std::vector<Rank>> ranks_;  // by host, in the order of their first ranks
};

}  // namespace sparsewire::proto
