// Peers of many ranks, in virtual time: joins climb a tree. All agree within the bound on messages
// and rounds; a rank that differs, refuses or is late is named on every rank or by those that wait
// for it; and later operations work.
#include <doctest/doctest.h>

#include <set>

#include "peer_world.hpp"
#include "sparse_collectives.hpp"

namespace peer_many_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;
using wire::Collective;
using wire::FrameKind;

constexpr Rank kWorlds[] = {32, 33, 64, 100, 257};

// Nothing but joins: all agree on the stream.
constexpr Call kAgreed{.descriptor = {.count = 100'000, .is_sparse = true},
                       .algorithm = Algorithm::stream};
constexpr Call kOther{.descriptor = {.count = 100'001, .is_sparse = true},
                      .algorithm = Algorithm::stream};

// One vector for all ranks: what it holds is of no matter here.
class Caller {
 public:
  Caller() : usual_(vector_of(kAgreed)), odd_(vector_of(kOther)) {}

  void will_call(PeerWorld& world, Rank rank) { submit(world, rank, usual_); }
  void will_call_otherwise(PeerWorld& world, Rank rank) { submit(world, rank, odd_); }
  void all_will_call(PeerWorld& world, Rank world_size, Rank but = kNoRank) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      if (rank != but) will_call(world, rank);
    }
  }

 private:
  static SparseCollective vector_of(const Call& call) {
    Random random(1);
    return sparse_collective(call, 1, 50, random, [&](std::size_t count) {
      return random_small_numbers(count, DType::float32, random);
    });
  }
  static void submit(PeerWorld& world, Rank rank, SparseCollective& collective) {
    world.will_submit(rank, collective.call(), collective.vector(0).tensor(),
                      collective.outputs(0));
  }

  SparseCollective usual_;
  SparseCollective odd_;
};

std::uint64_t ceil_log4(Rank world_size) {
  std::uint64_t log = 0;
  for (std::int64_t power = 1; power < world_size; power *= 4) ++log;
  return log;
}

// Sometimes one rank comes when the others have nothing more to do.
void run_with_a_late_one(PeerWorld& world, Rank world_size, Random& random) {
  if (one_in(3, random)) {
    world.set_late(static_cast<Rank>(below(static_cast<std::uint64_t>(world_size), random)));
  }
  world.run();
}

void check_agreed(PeerWorld& world, Rank world_size, std::uint64_t seq) {
  for (Rank rank = 0; rank < world_size; ++rank) {
    REQUIRE_FALSE(world.failure(rank, seq));
    REQUIRE(world.has_chosen_stream(rank, seq));
  }
}

bool names(const std::string& message, Rank rank) {
  const std::string name = "rank " + std::to_string(rank);
  const std::size_t at = message.find(name);
  return at != std::string::npos && message.find(name + " ") == at;
}

void check_all_failed(PeerWorld& world, Rank world_size, std::uint64_t seq, ErrorCode code,
                      Rank culprit) {
  for (Rank rank = 0; rank < world_size; ++rank) {
    CAPTURE(rank);
    REQUIRE_FALSE(world.has_ended(rank, seq));
    const Status failure = world.failure(rank, seq);
    REQUIRE(failure);
    CAPTURE(failure->message);
    REQUIRE(failure->code == code);
    REQUIRE(names(failure->message, culprit));
  }
}

// --- Counts ---

TEST_CASE("few ranks join in one round, with a message for each pair") {
  for (const Rank n : {2, 5, proto::kTreeFrom - 1}) {
    Caller caller;
    PeerWorld world(n, 1);
    caller.all_will_call(world, n);
    world.issue_all();
    world.run();
    check_agreed(world, n, 0);
    const auto ranks = static_cast<std::uint64_t>(n);
    CHECK(world.counters().messages == ranks * (ranks - 1));
    CHECK(world.rounds() == 1);
    world.check_nothing_left();
  }
}

TEST_CASE("many ranks join with a few messages for each, in rounds as their logarithm") {
  for (const Rank n : kWorlds) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      CAPTURE(n);
      Caller caller;
      PeerWorld world(n, seed);
      caller.all_will_call(world, n);
      world.issue_all();
      world.run();
      check_agreed(world, n, 0);
      const auto edges = static_cast<std::uint64_t>(n - 1);
      const auto& counters = world.counters();
      CHECK(counters.of_kind.at(FrameKind::join) == 2 * edges);
      CHECK(counters.of_kind.at(FrameKind::tally) <= edges + edges / 2);
      CHECK(counters.messages <= 7 * edges / 2);
      CHECK(counters.longest == wire::kJoinBytes);
      CHECK(world.rounds() <= 2 * ceil_log4(n));
      world.check_nothing_left();
    }
  }
}

// --- Ranks that differ ---

TEST_CASE("a rank that calls something else is named on every rank") {
  for (const Rank n : kWorlds) {
    for (std::uint64_t seed = 0; seed < fewer_if_watched(n < 100 ? 40 : 6); ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Random random(seed);
      const auto odd = static_cast<Rank>(below(static_cast<std::uint64_t>(n), random));
      Caller caller;
      PeerWorld world(n, seed);
      caller.all_will_call(world, n, odd);
      if (one_in(3, random)) {
        world.will_stream(odd, {{DType::float32, ReduceOp::sum, 1000}});
      } else {
        caller.will_call_otherwise(world, odd);
      }
      caller.all_will_call(world, n);
      run_with_a_late_one(world, n, random);
      check_all_failed(world, n, 0, ErrorCode::mismatch, odd);
      check_agreed(world, n, 1);
      world.check_nothing_left();
      CHECK(world.counters().messages <= 9 * static_cast<std::uint64_t>(n));
    }
  }
}

TEST_CASE("ranks that cannot take part are heard of on every rank") {
  for (const Rank n : kWorlds) {
    for (std::uint64_t seed = 0; seed < fewer_if_watched(n < 100 ? 40 : 6); ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Random random(seed);
      const auto refusing = static_cast<Rank>(below(static_cast<std::uint64_t>(n), random));
      const Error error{ErrorCode::input, refusing,
                        "rank " + std::to_string(refusing) + " cannot take part"};
      const bool streams = one_in(3, random);
      Caller caller;
      PeerWorld world(n, seed);
      for (Rank rank = 0; rank < n; ++rank) {
        if (rank == refusing) {
          world.will_refuse(rank, error);
        } else if (streams) {
          world.will_stream(rank, {{DType::float32, ReduceOp::sum, 1000}});
        } else {
          caller.will_call(world, rank);
        }
      }
      caller.all_will_call(world, n);
      run_with_a_late_one(world, n, random);
      check_all_failed(world, n, 0, ErrorCode::input, refusing);
      CHECK(world.failure(0, 0)->rank == refusing);
      check_agreed(world, n, 1);
      world.check_nothing_left();
      CHECK(world.counters().messages <= 9 * static_cast<std::uint64_t>(n));
    }
  }
}

// --- Ranks that are late ---

std::set<Rank> named_by_all(PeerWorld& world, Rank world_size) {
  std::set<Rank> named;
  for (Rank rank = 0; rank < world_size; ++rank) {
    for (const Rank missing : world.missing(rank, 0)) named.insert(missing);
  }
  return named;
}

TEST_CASE("those that are late are named by their neighbours, and nobody else is") {
  for (const Rank n : kWorlds) {
    for (std::uint64_t seed = 0; seed < fewer_if_watched(8); ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Random random(seed);
      std::set<Rank> late;
      for (std::uint64_t count = 1 + below(3, random); count != 0; --count) {
        late.insert(static_cast<Rank>(below(static_cast<std::uint64_t>(n), random)));
      }
      Caller caller;
      PeerWorld world(n, seed);
      for (Rank rank = 0; rank < n; ++rank) {
        if (!late.contains(rank)) caller.will_call(world, rank);
      }
      world.run();
      for (Rank rank = 0; rank < n; ++rank) REQUIRE_FALSE(world.has_chosen_stream(rank, 0));
      CHECK((named_by_all(world, n) == late));
      for (const Rank rank : late) {
        CHECK(world.missing(rank, 0).empty());
        caller.will_call(world, rank);
      }
      world.run();
      check_agreed(world, n, 0);
      world.check_nothing_left();
    }
  }
}

TEST_CASE("whoever asks is told who is late, by those who wait for it") {
  for (const Rank n : kWorlds) {
    for (std::uint64_t seed = 0; seed < fewer_if_watched(10); ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      Random random(seed);
      const auto late = static_cast<Rank>(below(static_cast<std::uint64_t>(n), random));
      Caller caller;
      PeerWorld world(n, seed);
      caller.all_will_call(world, n, late);
      world.run();
      const std::uint64_t before = world.counters().messages;
      for (int i = 0; i < 3; ++i) {
        const auto asking = static_cast<Rank>(below(static_cast<std::uint64_t>(n), random));
        if (asking == late) continue;
        CAPTURE(asking);
        world.ask(asking, 0);
        world.run();
        REQUIRE((world.missing(asking, 0) == std::vector<Rank>{late}));
      }
      CHECK(world.counters().messages - before <= 3 * 4 * ceil_log4(n));
      for (Rank rank = 0; rank < n; ++rank) world.ask(rank, 0);  // all at once
      world.run();
      for (Rank rank = 0; rank < n; ++rank) {
        if (rank != late) REQUIRE((world.missing(rank, 0) == std::vector<Rank>{late}));
      }
      caller.will_call(world, late);
      world.run();
      check_agreed(world, n, 0);
      world.check_nothing_left();
    }
  }
}

TEST_CASE("nobody is named any more once all have joined, whoever asks and when") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Rank n = pick({32, 33, 64}, random);
    Caller caller;
    PeerWorld world(n, seed);
    caller.all_will_call(world, n);
    world.issue_all();
    for (int i = 0; i < 20; ++i) {
      world.ask(static_cast<Rank>(below(static_cast<std::uint64_t>(n), random)), 0);
    }
    world.run();
    check_agreed(world, n, 0);
    world.check_nothing_left();
  }
}

// --- Whole collectives ---

Call random_call(Rank world_size, Random& random) {
  const std::uint32_t row = pick({1u, 1u, 16u}, random);
  const std::uint64_t length = pick<std::uint64_t>({10, 700, 3000, 30'000 / row}, random);
  Call call = random_sparse_call(sparse_descriptor(pick(kDTypes, random), length, row, random),
                                 static_cast<std::size_t>(world_size), random);
  // What every rank sends to every other takes long to play with so many.
  if (world_size > 64 && call.collective == Collective::all_reduce) {
    call.algorithm = Algorithm::ssar_recursive_double;
  }
  return call;
}

void check_random_collectives(Rank world_size, std::uint64_t seed) {
  CAPTURE(world_size);
  CAPTURE(seed);
  Random random(seed);
  const auto n = static_cast<std::size_t>(world_size);
  std::deque<SparseCollective> collectives;
  for (int i = 0; i < 2; ++i) {
    const Call call = random_call(world_size, random);
    collectives.push_back(sparse_collective(call, n, 40, random, [&](std::size_t count) {
      return random_small_numbers(count, call.descriptor.dtype, random);
    }));
  }
  PeerWorld world(world_size, seed);
  for (SparseCollective& collective : collectives) {
    for (std::size_t rank = 0; rank < n; ++rank) {
      world.will_submit(static_cast<Rank>(rank), collective.call(),
                        collective.vector(rank).tensor(), collective.outputs(rank));
    }
  }
  if (one_in(3, random)) world.set_late(static_cast<Rank>(below(n, random)));
  world.run();
  for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
    CAPTURE(wire::describe(collectives[seq].call()));
    for (std::size_t rank = 0; rank < n; ++rank) {
      CAPTURE(rank);
      REQUIRE(world.has_ended(static_cast<Rank>(rank), seq));
      REQUIRE_FALSE(world.failure(static_cast<Rank>(rank), seq));
      REQUIRE(same(collectives[seq].results(rank), collectives[seq].expected(rank)));
    }
  }
  CHECK(world.counters().early_parts == 0);
  world.check_nothing_left();
}

TEST_CASE("random collectives of many ranks in random order") {
  std::uint64_t seed = 0;
  for (const Rank n : {32, 33, 64}) {
    for (auto repeat = fewer_if_watched(n < 64 ? 12 : 4); repeat != 0; --repeat)
      check_random_collectives(n, ++seed);
  }
  check_random_collectives(100, ++seed);
}

// --- What others must not say ---

// Rank 16 of 64: 17, 20, 24 and 28 speak to it for those behind them, and 0 is above it.
class Bench {
 public:
  explicit Bench(bool submits = true) {
    if (submits) submit();
  }

  void submit() {
    proto::Peer::Effects effects;
    peer_.submit(0, collective_.call(), collective_.vector(0).tensor(), collective_.outputs(0),
                 effects);
  }
  Status send(Rank from, FrameKind kind, const Buffer& payload) {
    proto::Peer::Effects effects;
    const auto size = static_cast<std::uint32_t>(payload.size());
    const wire::FrameHeader header{.kind = kind, .payload = size, .chunk = 0};
    if (Status error = peer_.on_message(from, {header, Bytes::copy_of(payload)}, effects)) {
      return error;
    }
    const auto worked = peer_.poll(effects);
    return worked ? Status{} : worked.error();
  }
  Status join(Rank from) {
    Buffer payload(wire::kJoinBytes);
    wire::encode(wire::Join{.call = collective_.call()},
                 std::span<std::byte, wire::kJoinBytes>(payload));
    return send(from, FrameKind::join, payload);
  }
  Status tally(Rank from) { return send(from, FrameKind::tally, Buffer(wire::kTallyBytes)); }
  void all_below_join() {
    for (const Rank from : {17, 20, 24, 28}) {
      REQUIRE_FALSE(join(from));
      REQUIRE_FALSE(tally(from));
    }
  }

 private:
  static SparseCollective short_broadcast() {
    Random random(1);
    const Call call{.descriptor = {.count = 200, .is_sparse = true},
                    .collective = Collective::broadcast};
    return sparse_collective(call, 1, 0, random,
                             [&](std::size_t count) { return Buffer(4 * count); });
  }

  SparseCollective collective_ = short_broadcast();
  proto::Peer peer_{16, 64};
};

bool is_violation(const Status& status) {
  return status && status->code == ErrorCode::protocol && !status->message.empty();
}

TEST_CASE("a rank is told by its neighbours alone") {
  const Bytes fault = wire::encode_fault({ErrorCode::input, 18, "no"});
  const Buffer refusal(fault.view().begin(), fault.view().end());
  for (const Rank stranger : {1, 15, 18, 19, 32, 63}) {
    CHECK(is_violation(Bench().join(stranger)));
    CHECK(is_violation(Bench().tally(stranger)));
    CHECK(is_violation(Bench().send(stranger, FrameKind::refuse, refusal)));
  }
  for (const Rank neighbour : {0, 17, 20, 24, 28}) {
    CHECK_FALSE(Bench().send(neighbour, FrameKind::refuse, refusal));
  }
}

TEST_CASE("no part comes before all below have joined, however short the vector") {
  CHECK(is_violation(Bench(false).send(0, FrameKind::part, {})));
  CHECK(is_violation(Bench().send(0, FrameKind::part, {})));
  Bench bench;
  REQUIRE_FALSE(bench.join(0));
  CHECK(is_violation(bench.send(0, FrameKind::part, {})));
  Bench done;
  done.all_below_join();
  CHECK_FALSE(done.send(0, FrameKind::part, {}));
}

TEST_CASE("a peer of many takes any messages or refuses them") {
  const Rank ranks[] = {0, 17, 20, 24, 28, 5};
  const FrameKind kinds[] = {FrameKind::join, FrameKind::tally, FrameKind::missing,
                             FrameKind::refuse, FrameKind::part};
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Bench bench(one_in(2, random));
    if (one_in(2, random)) bench.all_below_join();
    for (int i = 0; i < 12; ++i) {
      const Rank from = pick(ranks, random);
      Status error;
      switch (below(3, random)) {
        case 0:
          error = bench.join(from);
          break;
        case 1:
          error = bench.tally(from);
          break;
        default:
          error = bench.send(from, pick(kinds, random), random_bytes(below(60, random), random));
      }
      if (!error) continue;
      REQUIRE(is_violation(error));
      break;
    }
  }
}

}  // namespace peer_many_test
