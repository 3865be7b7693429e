// Schedules: the steps of one rank for one part of a sparse collective. They are the algorithms of
// SparCML (Renggli et al., SC'19), for any number of ranks.
#pragma once

#include <vector>

#include "base/types.hpp"
#include "proto/stream/hosts.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

struct Step {
  enum class Kind : std::uint8_t {
    send,  // the values that this rank holds go to `ranks`
    add,   // the sum of the values of `ranks`, in this order, replaces those that this rank holds
    take,  // the final values of the one of `ranks` replace those that this rank holds
  };
  Kind kind;
  std::vector<Rank> ranks;  // in `add`, this rank stands for the values that it holds
  bool completes = false;   // an addition after which nothing is missing from the sum
  // In `send`: numbers the values that this rank holds; the same on all ranks that hold the same
  // values. A rank that sends them to no other has the step, too, if others send them, so that all
  // round them alike. None if the values stay on the host, and so are not rounded.
  Rank label = kNoRank;
};
using Schedule = std::vector<Step>;

std::vector<Rank> all_ranks(Rank world_size);

// Sums are the same to the last bit on every rank, because each is computed by one rank, or by
// several in the same order. That order is that of the ranks, 0 first, but for the ring.

// Every rank sends its values to every other, and all add them up.
Schedule allgather_schedule(Rank rank, Rank world_size);

// Recursive doubling over a balanced tree of ranks. If a half has one rank more, a rank of the
// other half serves it, too, so that no number of ranks needs an extra fold: ceil(log2(world_size))
// rounds.
Schedule recursive_double_schedule(Rank rank, Rank world_size);

// The keeper of a part is the rank that brings it, or completes its sum, and sends it to others. If
// ranks share hosts, one rank of each host speaks to the keeper for all of them (see Hosts).

// A sum goes around the ring to `keeper`, growing; then around again, complete. The order of the
// sum starts after the keeper.
Schedule ring_schedule(Rank rank, Rank world_size, Rank keeper);

// All send to `keeper`, which adds up and sends to `receivers`. The order of the sum is that of the
// hosts, and of the ranks in each.
Schedule split_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper,
                        const std::vector<Rank>& receivers);

// From `keeper` straight to all others, for a gather, in which every rank is busy anyway.
Schedule gather_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper);

// From `root` down a binomial tree of hosts, and down one of the ranks in each host.
Schedule broadcast_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank root);

}  // namespace sparsewire::proto
