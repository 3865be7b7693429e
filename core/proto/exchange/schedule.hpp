// Schedules: what one rank does for one part of a sparse collective, step by step. They are the
// algorithms of SparCML (Renggli et al., SC'19), for any number of ranks.
#pragma once

#include <vector>

#include "base/types.hpp"
#include "proto/stream/hosts.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

struct Step {
  enum class Kind : std::uint8_t {
    send,  // what this rank holds goes to `ranks`
    add,   // the sum of what `ranks` hold, in this order, replaces what this rank holds
    take,  // what the one of `ranks` holds replaces what this rank holds; it is final
  };
  Kind kind;
  std::vector<Rank> ranks;  // in `add`, this rank itself stands for what it holds
  bool completes = false;   // an addition after which nothing is missing from the sum
  // In `send`: numbers what this rank holds, the same on all ranks that hold the same. Those that
  // send it to nobody have a step for it, too, where others must not see it rounded differently.
  // None where it stays on the host, and so is not rounded.
  Rank label = kNoRank;
};
using Schedule = std::vector<Step>;

std::vector<Rank> all_ranks(Rank world_size);

// Sums are the same to the last bit on every rank, because each is computed by one rank, or by
// several in the same order. That order is the one of the ranks, 0 first, but for the ring.

// Every rank sends to every other, and all add up what they have got.
Schedule allgather_schedule(Rank rank, Rank world_size);

// Recursive doubling over a balanced tree of ranks. Where a half has one rank more, one of the
// other half's serves it too, so that no number of ranks needs an extra fold:
// ceil(log2(world_size)) rounds.
Schedule recursive_double_schedule(Rank rank, Rank world_size);

// The keeper of a part is the rank that brings it, or completes its sum, and sends it to others.
// Where ranks share hosts, one of each host speaks to the keeper for all of them (see Hosts).

// Around the ring to `keeper`, growing; then around again, complete. The order of the sum starts
// behind the keeper.
Schedule ring_schedule(Rank rank, Rank world_size, Rank keeper);

// All send to `keeper`, who adds up and sends to `receivers`. The order of the sum is that of the
// hosts, and of the ranks in each.
Schedule split_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper,
                        const std::vector<Rank>& receivers);

// From `keeper` straight to all others: of a gather, in which every rank is busy anyway.
Schedule gather_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper);

// From `root` down a binomial tree of hosts, and one of ranks in each.
Schedule broadcast_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank root);

}  // namespace sparsewire::proto
