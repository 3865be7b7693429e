// Builds schedules.
#include "proto/exchange/schedule.hpp"

#include <algorithm>
#include <numeric>

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
  const bool is_first = before == keeper;  // of those who add
  const bool is_last = behind == keeper;   // of those who get the sum
  Schedule schedule;
  if (world_size == 1) return allgather_schedule(rank, world_size);
  if (!is_first) schedule.push_back({Step::Kind::add, {before, rank}, rank == keeper});
  append_send(schedule, {behind}, rank == keeper ? world_size : rank);
  if (rank == keeper) return schedule;
  schedule.push_back({Step::Kind::take, {before}});
  if (!is_last) append_send(schedule, {behind}, world_size);
  return schedule;
}

Schedule split_schedule(Rank rank, Rank world_size, Rank keeper,
                        const std::vector<Rank>& receivers) {
  Schedule schedule;
  if (rank == keeper) {
    schedule.push_back({Step::Kind::add, all_ranks(world_size), true});
    append_send(schedule, without(receivers, rank), world_size);
    return schedule;
  }
  append_send(schedule, {keeper}, rank);
  if (std::ranges::find(receivers, rank) != receivers.end()) {
    schedule.push_back({Step::Kind::take, {keeper}});
  }
  return schedule;
}

Schedule gather_schedule(Rank rank, Rank world_size, Rank keeper) {
  Schedule schedule;
  if (rank == keeper) {
    append_send(schedule, without(all_ranks(world_size), rank), keeper);
  } else {
    schedule.push_back({Step::Kind::take, {keeper}});
  }
  return schedule;
}

Schedule broadcast_schedule(Rank rank, Rank world_size, Rank root) {
  const auto real = [&](Rank place) { return (place + root) % world_size; };
  const Rank place = (rank - root + world_size) % world_size;
  Schedule schedule;
  Rank step = 1;
  while (step < world_size && (place & step) == 0) step *= 2;
  if (place != 0) schedule.push_back({Step::Kind::take, {real(place - step)}});
  std::vector<Rank> children;
  for (step /= 2; step > 0; step /= 2) {
    if (place + step < world_size) children.push_back(real(place + step));
  }
  append_send(schedule, std::move(children), root);
  return schedule;
}

}  // namespace sparsewire::proto
