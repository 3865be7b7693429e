// The table of an owner's states, walked row by row through an owner; what it does not have is
// refused.
#include "proto/stream/owner/owner.hpp"
#include "state_tables.hpp"
#include "stream_benches.hpp"

namespace owner_state_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::OwnerState;
using proto::OwnerStep;

void take(OwnerBench& bench, OwnerStep step) {
  if (step == OwnerStep::fail) {
    CHECK(bench.takes(0, cancel(0)));
    return;
  }
  for (const Rank rank : {0, 1}) CHECK(bench.takes(rank, open(0, kSum, 0)));
}

void bring_to(OwnerBench& bench, OwnerState state) {
  if (state == OwnerState::adding) take(bench, OwnerStep::open_last);
  if (state == OwnerState::failed) take(bench, OwnerStep::fail);
}

TEST_CASE("every row of the table happens to an owner") {
  for_each_row(proto::kOwnerTransitions, [](OwnerState from, OwnerStep step, OwnerState to) {
    OwnerBench bench;
    bring_to(bench, from);
    if (from != OwnerState::opening) REQUIRE(bench.owner().state(0) == from);
    take(bench, step);
    CHECK(bench.owner().state(0) == to);
  });
}

TEST_CASE("an operation is opening until its last rank has opened it") {
  OwnerBench bench;
  CHECK_FALSE(bench.owner().state(0));
  CHECK(bench.takes(1, open(0, kSum, 0)));
  CHECK(bench.owner().state(0) == OwnerState::opening);
  CHECK(bench.takes(0, open(0, kSum, 0)));
  CHECK(bench.owner().state(0) == OwnerState::adding);
}

TEST_CASE("a failed operation stays so until all have cancelled it") {
  OwnerBench bench;
  CHECK(bench.takes(0, cancel(0)));
  CHECK(bench.takes(1, open(0, kSum, 0)));
  CHECK(bench.owner().state(0) == OwnerState::failed);
  CHECK(bench.takes(1, cancel(0)));
  CHECK_FALSE(bench.owner().state(0));
}

// Of three ranks.
proto::Owner owner_of_openers() {
  wire::Topology topology = kTopology;
  topology.world_size = 3;
  return {topology, 0, 0, {.all_cancel = false}};
}

TEST_CASE("where only those cancel that have opened, the last of them ends a failed operation") {
  proto::Owner owner = owner_of_openers();
  proto::Owner::Outbox outbox;
  CHECK_FALSE(owner.on_message(0, open(0, kSum, 0), outbox));
  CHECK_FALSE(owner.on_message(1, open(0, kMax, 0), outbox));
  REQUIRE(outbox.size() == 1);
  CHECK(outbox.front().header.kind == FrameKind::fail);
  CHECK_FALSE(owner.on_message(0, cancel(0), outbox));
  CHECK(owner.state(0) == OwnerState::failed);
  CHECK_FALSE(owner.on_message(1, cancel(0), outbox));
  CHECK_FALSE(owner.state(0));
  // One that comes late opens it anew, and nothing comes of that.
  CHECK_FALSE(owner.on_message(2, open(0, kSum, 0), outbox));
  CHECK_FALSE(owner.on_message(2, segment(0, 0, 2), outbox));
  CHECK(owner.state(0) == OwnerState::opening);
  CHECK_FALSE(owner.on_message(2, cancel(0), outbox));
  CHECK(owner.operations() == 0);
  CHECK(owner.buffered_bytes() == 0);
  CHECK(outbox.size() == 1);
}

TEST_CASE("whoever opens a failed operation may go on with it until it cancels it") {
  proto::Owner owner = owner_of_openers();
  proto::Owner::Outbox outbox;
  CHECK_FALSE(owner.on_message(0, open(0, kSum, 0), outbox));
  CHECK_FALSE(owner.on_message(1, open(0, kMax, 0), outbox));
  CHECK_FALSE(owner.on_message(2, open(0, kSum, 0), outbox));
  for (const Rank rank : {0, 1}) CHECK_FALSE(owner.on_message(rank, cancel(0), outbox));
  CHECK(owner.state(0) == OwnerState::failed);
  CHECK_FALSE(owner.on_message(2, segment(0, 0, 2), outbox));
  CHECK_FALSE(owner.on_message(2, cancel(0), outbox));
  CHECK(owner.operations() == 0);
  CHECK(outbox.size() == 1);
}

TEST_CASE("where only those cancel that have opened, a decline alone leaves nothing behind") {
  proto::Owner owner = owner_of_openers();
  proto::Owner::Outbox outbox;
  const Error error{ErrorCode::mismatch, 1, "no"};
  CHECK_FALSE(owner.on_message(1, wire::fault_message(FrameKind::decline, error, 0), outbox));
  REQUIRE(outbox.size() == 1);
  CHECK(outbox.front().header.kind == FrameKind::fail);
  CHECK(owner.operations() == 0);
}

TEST_CASE("what an owner's table does not have is refused") {
  check_refuses_the_rest(proto::kOwnerTransitions,
                         {OwnerState::opening, OwnerState::adding, OwnerState::failed},
                         {OwnerStep::open_last, OwnerStep::fail});
}

}  // namespace owner_state_test
