// Builds schedules.
#include "proto/exchange/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace sparsewire::proto {
namespace {

std::vector<Rank> without(std::vector<Rank> ranks, Rank rank) {
  std::erase(ranks, rank);
  return ranks;
}

void append_send(Schedule& schedule, std::vector<Rank> ranks, Rank label) {
  if (!ranks.empty()) schedule.push_back({Step::Kind::send, std::move(ranks), false, label});
}

// Joins the sums of the two halves of [first, first + count), the larger half first. Halves are
// numbered as in a heap: those of `node` are 2 * node and the next.
void append_doubling(Schedule& schedule, Rank rank, Rank first, Rank count, Rank node) {
  if (count == 1) return;
  const Rank large = (count + 1) / 2;
  const Rank small = count - large;
  const bool is_left = rank < first + large;
  const Rank half = 2 * node + (is_left ? 0 : 1);
  is_left ? append_doubling(schedule, rank, first, large, half)
          : append_doubling(schedule, rank, first + large, small, half);
  const Rank place = is_left ? rank - first : rank - first - large;
  const bool is_odd_one = place == small;  // the left rank without a partner of its own
  const Rank partner = is_left ? first + large + (is_odd_one ? small - 1 : place) : first + place;
  std::vector<Rank> receivers;
  if (!is_odd_one) receivers.push_back(partner);
  if (!is_left && place == small - 1 && large > small) receivers.push_back(first + large - 1);
  schedule.push_back({Step::Kind::send, std::move(receivers), false, half});
  schedule.push_back(
      {Step::Kind::add, is_left ? std::vector{rank, partner} : std::vector{partner, rank}});
}

Rank speaker_to(const Hosts& hosts, Rank keeper, Rank rank) {
  return hosts.speaker(rank, static_cast<std::uint32_t>(keeper));
}

std::vector<Rank> speakers_to(const Hosts& hosts, Rank keeper, Rank world_size) {
  return hosts.speakers(static_cast<std::uint32_t>(keeper), static_cast<std::uint32_t>(world_size));
}

// The keeper's values go to the receivers: straight, or by the speaker of a host, if the speaker
// receives them, too.
void append_delivery(Schedule& schedule, Rank rank, const Hosts& hosts, Rank keeper,
                     const std::vector<Rank>& receivers, Rank label) {
  const auto receives = [&](Rank one) { return std::ranges::count(receivers, one) > 0; };
  const auto source = [&](Rank receiver) {
    const Rank speaker = speaker_to(hosts, keeper, receiver);
    return speaker != receiver && receives(speaker) ? speaker : keeper;
  };
  if (rank != keeper && receives(rank)) {
    schedule.push_back({Step::Kind::take, {source(rank)}});
  }
  std::vector<Rank> served;
  for (const Rank receiver : receivers) {
    if (receiver != keeper && receiver != rank && source(receiver) == rank) {
      served.push_back(receiver);
    }
  }
  append_send(schedule, std::move(served), label);
}

// One rank's place in a tree.
struct TreePlace {
  std::optional<Rank> parent;
  std::vector<Rank> children;
};

// Adds the rank's place in a binomial tree of these ranks.
void grow(TreePlace& own, Rank rank, const std::vector<Rank>& ranks, Rank root) {
  const std::size_t size = ranks.size();
  const auto index = [&](Rank one) {
    return static_cast<std::size_t>(std::ranges::find(ranks, one) - ranks.begin());
  };
  const std::size_t shift = index(root);
  const auto real = [&](std::size_t place) { return ranks[(place + shift) % size]; };
  const std::size_t place = (index(rank) + size - shift) % size;
  std::size_t step = 1;
  while (step < size && (place & step) == 0) step *= 2;
  if (place != 0) own.parent = real(place - step);
  for (step /= 2; step > 0; step /= 2) {
    if (place + step < size) own.children.push_back(real(place + step));
  }
}

}  // namespace

std::vector<Rank> all_ranks(Rank world_size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Schedule allgather_schedule(Rank rank, Rank world_size) {
  const std::vector<Rank> all = all_ranks(world_size);
  Schedule schedule;
  append_send(schedule, without(all, rank), rank);
  schedule.push_back({Step::Kind::add, all, true});
  return schedule;
}

Schedule recursive_double_schedule(Rank rank, Rank world_size) {
  Schedule schedule;
  append_doubling(schedule, rank, 0, world_size, 1);
  if (schedule.empty()) schedule.push_back({Step::Kind::add, {rank}});
  schedule.back().completes = true;
  return schedule;
}

Schedule ring_schedule(Rank rank, Rank world_size, Rank keeper) {
  const Rank before = (rank + world_size - 1) % world_size;
  const Rank behind = (rank + 1) % world_size;
  const bool is_first = before == keeper;  // of the ranks that add
  const bool is_last = behind == keeper;   // of the ranks that get the sum
  Schedule schedule;
  if (world_size == 1) return allgather_schedule(rank, world_size);
  if (!is_first) schedule.push_back({Step::Kind::add, {before, rank}, rank == keeper});
  append_send(schedule, {behind}, rank == keeper ? world_size : rank);
  if (rank == keeper) return schedule;
  schedule.push_back({Step::Kind::take, {before}});
  if (!is_last) append_send(schedule, {behind}, world_size);
  return schedule;
}

Schedule split_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper,
                        const std::vector<Rank>& receivers) {
  const Rank speaker = speaker_to(hosts, keeper, rank);
  Schedule schedule;
  if (rank != speaker) {
    append_send(schedule, {speaker}, kNoRank);
  } else if (hosts.has_deputies(rank)) {
    schedule.push_back({Step::Kind::add, hosts.ranks_beside(rank)});
  }
  if (rank == keeper) {
    schedule.push_back({Step::Kind::add, speakers_to(hosts, keeper, world_size), true});
  } else if (rank == speaker) {
    append_send(schedule, {keeper}, rank);
  }
  append_delivery(schedule, rank, hosts, keeper, receivers, world_size);
  return schedule;
}

Schedule gather_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank keeper) {
  Schedule schedule;
  append_delivery(schedule, rank, hosts, keeper, all_ranks(world_size), keeper);
  return schedule;
}

Schedule broadcast_schedule(Rank rank, Rank world_size, const Hosts& hosts, Rank root) {
  const Rank speaker = speaker_to(hosts, root, rank);
  TreePlace own;
  if (rank == speaker) grow(own, rank, speakers_to(hosts, root, world_size), root);
  if (hosts.has_deputies(rank)) grow(own, rank, hosts.ranks_beside(rank), speaker);
  Schedule schedule;
  if (own.parent) schedule.push_back({Step::Kind::take, {*own.parent}});
  append_send(schedule, std::move(own.children), root);
  return schedule;
}

}  // namespace sparsewire::proto
