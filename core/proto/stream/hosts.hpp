// The hosts that ranks share. Where there are several, the ranks of a host send their values to one
// of them, the owner's deputy, which adds them up and takes part as one worker for all of them; so
// each value crosses the network once for a host.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace sparsewire::proto {

class Hosts {
 public:
  // `host_of` numbers each rank's host; none, or one host, or a host for each rank: all is flat,
  // and every rank speaks for itself.
  Hosts() = default;
  explicit Hosts(std::vector<std::uint32_t> host_of);

  bool is_flat() const { return ranks_.empty(); }
  bool share(Rank a, Rank b) const { return !is_flat() && host(a) == host(b); }

  // All ranks of a rank's host, ascending; only where it is not flat.
  const std::vector<Rank>& ranks_beside(Rank rank) const { return ranks_[host(rank)]; }

  // Whether a rank's host has a deputy for each owner: where the rank is not alone there.
  bool has_deputies(Rank rank) const { return !is_flat() && ranks_beside(rank).size() > 1; }

  // Who speaks to the owner for a rank: the deputy of its host, or the rank itself. Deputies of an
  // owner have its place in their hosts, so that all are busy alike, and where hosts are alike each
  // rank talks to one rank of every other host.
  Rank speaker(Rank rank, std::uint32_t owner) const;

  // All that speak to an owner; as many as hosts, or as ranks where it is flat.
  std::uint64_t count(std::uint64_t world_size) const {
    return is_flat() ? world_size : ranks_.size();
  }

  // All that speak to an owner, a host each, in the order of the hosts.
  std::vector<Rank> speakers(std::uint32_t owner, std::uint32_t world_size) const;

 private:
  std::size_t host(Rank rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  std::vector<std::uint32_t> host_of_;
  std::vector<std::uint32_t> place_of_;   // of each rank in its host
  std::vector<std::vector<Rank>> ranks_;  // by host, in the order of their first ranks
};

}  // namespace sparsewire::proto
