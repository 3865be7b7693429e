// The table of a peer's states, walked row by row through a peer; what it does not have is refused.
#include <doctest/doctest.h>

#include <array>

#include "proto/exchange/peer.hpp"
#include "sparse_collectives.hpp"
#include "state_tables.hpp"
#include "wire/frame.hpp"

namespace peer_state_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::PeerState;
using proto::PeerStep;

constexpr wire::Call kCall{.descriptor = {.count = 100'000, .is_sparse = true},
                           .algorithm = wire::Algorithm::allgather};

// Rank 0 of three, and what the others send to it.
class Walk {
 public:
  Walk()
      : random_(1), collective_(sparse_collective(kCall, 3, 100, random_, [&](std::size_t count) {
          return random_small_numbers(count, kCall.descriptor.dtype, random_);
        })) {}

  void take(PeerStep step) {
    switch (step) {
      case PeerStep::submit:
        return peer_.submit(0, collective_.call(), collective_.vector(0).tensor(),
                            collective_.outputs(0), effects_);
      case PeerStep::issue_stream:
        return peer_.issue_stream(0, kCall, effects_);
      case PeerStep::exchange:
        if (!has_joined_) join(1);
        return join(2);
      case PeerStep::fail:
        return fail();
    }
  }

  // Rank 1 joins, so that rank 0 has heard of the operation.
  void join_one() {
    join(1);
    has_joined_ = true;
  }

  std::optional<PeerState> state() const { return peer_.state(0); }

 private:
  void join(Rank rank) {
    std::array<std::byte, wire::kJoinBytes> payload;
    wire::encode(collective_.join(static_cast<std::size_t>(rank)), payload);
    deliver(rank, {{.kind = wire::FrameKind::join, .payload = wire::kJoinBytes},
                   Bytes::copy_of(payload)});
  }

  // What runs as a stream fails where somebody joins it, all others where somebody refuses them.
  void fail() {
    if (state() == PeerState::streaming) return join(1);
    const Error error{ErrorCode::input, 2, "no"};
    deliver(2, wire::fault_message(wire::FrameKind::refuse, error, 0));
  }

  void deliver(Rank from, const wire::Message& message) {
    REQUIRE_FALSE(peer_.on_message(from, message, effects_));
  }

  Random random_;
  SparseCollective collective_;
  proto::Peer peer_{0, 3};
  proto::Peer::Effects effects_;
  bool has_joined_ = false;
};

void bring_to(Walk& walk, PeerState state) {
  if (state == PeerState::streaming) return walk.take(PeerStep::issue_stream);
  if (state != PeerState::heard) walk.take(PeerStep::submit);
  if (state == PeerState::exchanging) walk.take(PeerStep::exchange);
}

TEST_CASE("every row of the table happens to a peer") {
  for_each_row(proto::kPeerTransitions, [](PeerState from, PeerStep step, PeerState to) {
    Walk walk;
    // A join is heard, but what runs as a stream and somebody has joined would fail at once.
    if (from == PeerState::heard && step != PeerStep::issue_stream) walk.join_one();
    bring_to(walk, from);
    const bool is_new = from == PeerState::heard && step == PeerStep::issue_stream;
    REQUIRE(walk.state() == (is_new ? std::nullopt : std::optional(from)));
    walk.take(step);
    CHECK(walk.state() == to);
  });
}

TEST_CASE("what a peer's table does not have is refused") {
  check_refuses_the_rest(
      proto::kPeerTransitions,
      {PeerState::heard, PeerState::joining, PeerState::streaming, PeerState::exchanging,
       PeerState::failed},
      {PeerStep::submit, PeerStep::issue_stream, PeerStep::exchange, PeerStep::fail});
}

TEST_CASE("a failed operation stays so, whoever issues it") {
  for (const PeerStep step : {PeerStep::submit, PeerStep::issue_stream, PeerStep::fail}) {
    Walk walk;
    walk.join_one();
    walk.take(PeerStep::fail);
    walk.take(step);
    CHECK(walk.state() == PeerState::failed);
  }
}

}  // namespace peer_state_test
