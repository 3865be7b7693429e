// Sparse collectives that cannot be done, in virtual time: every rank learns of it, whatever the
// order in which things happen, and later operations work.
#include <doctest/doctest.h>

#include <array>

#include "peer_world.hpp"
#include "sparse_collectives.hpp"

namespace peer_failures_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;
using wire::Collective;
using wire::Descriptor;

const Error kBadInput{ErrorCode::input, 0, "rank 0: indices must ascend"};

SparseCollective random_vectors(const Call& call, std::size_t world_size, Random& random) {
  const std::uint64_t length = call.descriptor.count / call.descriptor.row;
  return sparse_collective(call, world_size, length / 20, random, [&](std::size_t count) {
    return random_small_numbers(count, call.descriptor.dtype, random);
  });
}

Call random_call(std::size_t world_size, Random& random) {
  const std::uint32_t row = pick({1u, 16u}, random);
  const std::uint64_t length = pick<std::uint64_t>({10, 500, 3000, 70'000 / row}, random);
  return random_sparse_call(sparse_descriptor(pick(kDTypes, random), length, row, random),
                            world_size, random);
}

void will_submit(PeerWorld& world, SparseCollective& collective, std::size_t rank) {
  world.will_submit(static_cast<Rank>(rank), collective.call(), collective.vector(rank).tensor(),
                    collective.outputs(rank));
}

void will_submit_all(PeerWorld& world, SparseCollective& collective) {
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    will_submit(world, collective, rank);
  }
}

void check_done(PeerWorld& world, const SparseCollective& collective, std::uint64_t seq) {
  CAPTURE(seq);
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    CAPTURE(rank);
    REQUIRE(world.has_ended(static_cast<Rank>(rank), seq));
    REQUIRE_FALSE(world.failure(static_cast<Rank>(rank), seq));
    REQUIRE(same(collective.results(rank), collective.expected(rank)));
  }
}

void check_all_failed(PeerWorld& world, Rank world_size, std::uint64_t seq, ErrorCode code) {
  for (Rank rank = 0; rank < world_size; ++rank) {
    CAPTURE(rank);
    REQUIRE_FALSE(world.has_ended(rank, seq));
    const Status failure = world.failure(rank, seq);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == code);
  }
}

// One operation in the middle in which `fail` has its way, between others that work.
template <typename Fail>
void check_failing_operation(Rank world_size, std::uint64_t seed, ErrorCode code, Fail fail) {
  CAPTURE(world_size);
  CAPTURE(seed);
  Random random(seed);
  const auto n = static_cast<std::size_t>(world_size);
  std::deque<SparseCollective> others;
  for (int i = 0; i < 3; ++i) others.push_back(random_vectors(random_call(n, random), n, random));
  PeerWorld world(world_size, seed);
  will_submit_all(world, others[0]);
  std::deque<SparseCollective> kept;
  fail(world, kept, random);
  will_submit_all(world, others[1]);
  will_submit_all(world, others[2]);
  if (one_in(3, random)) world.set_late(static_cast<Rank>(below(n, random)));
  world.run();
  check_done(world, others[0], 0);
  check_all_failed(world, world_size, 1, code);
  check_done(world, others[1], 2);
  check_done(world, others[2], 3);
  world.check_nothing_left();
}

template <typename Fail>
void check_failing_operations(ErrorCode code, Fail fail) {
  std::uint64_t seed = 0;
  for (Rank world_size = 2; world_size <= 6; ++world_size) {
    for (int repeat = 0; repeat < 30; ++repeat) {
      check_failing_operation(
          world_size, ++seed, code,
          [&](PeerWorld& world, std::deque<SparseCollective>& kept, Random& random) {
            fail(world, static_cast<std::size_t>(world_size), kept, random);
          });
    }
  }
}

// --- Ranks that disagree ---

Call another_than(const Call& call, std::size_t world_size, Random& random) {
  while (true) {
    Call other = call;
    switch (below(6, random)) {
      case 0:
        other.descriptor.count += std::uint64_t{call.descriptor.row} * call.unit;
        break;
      case 1:
        other.descriptor.dtype = pick(kDTypes, random);
        break;
      case 2:
        other.descriptor.op = pick({ReduceOp::sum, ReduceOp::avg}, random);
        break;
      case 3:
        other.collective = pick(kCollectives, random);
        break;
      case 4:
        other.root = static_cast<std::uint32_t>(below(world_size, random));
        break;
      default:
        other.algorithm = pick(kExchanges, random);
    }
    if (other != call) return other;
  }
}

TEST_CASE("ranks that disagree all learn of it, and later operations work") {
  check_failing_operations(
      ErrorCode::mismatch, [](PeerWorld& world, std::size_t n, auto& kept, Random& random) {
        const Call usual = random_call(n, random);
        kept.push_back(random_vectors(usual, n, random));
        kept.push_back(random_vectors(another_than(usual, n, random), n, random));
        const std::size_t odd_one = below(n, random);
        for (std::size_t rank = 0; rank < n; ++rank) {
          will_submit(world, kept[rank == odd_one], rank);
        }
      });
}

TEST_CASE("a rank that runs as a stream what others join is told on all ranks") {
  check_failing_operations(
      ErrorCode::mismatch, [](PeerWorld& world, std::size_t n, auto& kept, Random& random) {
        kept.push_back(random_vectors(random_call(n, random), n, random));
        const std::size_t odd_one = below(n, random);
        for (std::size_t rank = 0; rank < n; ++rank) {
          const bool streams = rank == odd_one || one_in(4, random);
          if (streams && (rank == odd_one || (odd_one + 1) % n != rank)) {
            world.will_stream(static_cast<Rank>(rank), {{DType::float32, ReduceOp::sum, 1000}});
          } else {
            will_submit(world, kept[0], rank);
          }
        }
      });
}

TEST_CASE("a mismatch says who called what") {
  Random random(1);
  SparseCollective usual =
      random_vectors({.descriptor = {.count = 5000, .is_sparse = true}}, 2, random);
  SparseCollective odd =
      random_vectors({.descriptor = {.count = 5001, .is_sparse = true}}, 2, random);
  PeerWorld world(2, 1);
  will_submit(world, usual, 0);
  will_submit(world, odd, 1);
  world.run();
  for (const Rank rank : {0, 1}) {
    const std::string message = world.failure(rank, 0)->message;
    CAPTURE(message);
    CHECK(message.find("rank 0 called " + wire::describe(usual.call())) != std::string::npos);
    CHECK(message.find("rank 1 called " + wire::describe(odd.call())) != std::string::npos);
    CHECK(world.failure(rank, 0)->rank == 1 - rank);
  }
}

// What an all_gather needs of each rank, the joins of other collectives do not tell.
TEST_CASE("a short vector that all others have joined otherwise is not begun") {
  Random random(3);
  const Call gather{.descriptor = {.count = 500, .is_sparse = true},
                    .collective = Collective::all_gather};
  Call broadcast = gather;
  broadcast.collective = Collective::broadcast;
  SparseCollective odd = random_vectors(gather, 3, random);
  proto::Peer peer(2, 3);
  proto::Peer::Effects effects;
  std::array<std::byte, wire::kJoinBytes> payload;
  wire::encode(wire::Join{.call = broadcast}, payload);
  const wire::FrameHeader header{.kind = wire::FrameKind::join, .payload = wire::kJoinBytes};
  for (const Rank rank : {0, 1}) {
    REQUIRE_FALSE(peer.on_message(rank, {header, Bytes::copy_of(payload)}, effects));
  }
  peer.submit(0, odd.call(), odd.vector(2).tensor(), odd.outputs(2), effects);
  REQUIRE(effects.events.size() == 1);
  CHECK(effects.events.front().kind == proto::PeerEvent::Kind::failed);
  CHECK(effects.events.front().error.code == ErrorCode::mismatch);
}

// --- Ranks that refuse ---

TEST_CASE("where a rank refuses its input, every rank fails with that error") {
  check_failing_operations(ErrorCode::input,
                           [](PeerWorld& world, std::size_t n, auto& kept, Random& random) {
                             kept.push_back(random_vectors(random_call(n, random), n, random));
                             const std::size_t refusing = below(n, random);
                             for (std::size_t rank = 0; rank < n; ++rank) {
                               if (rank == refusing || one_in(6, random)) {
                                 world.will_refuse(static_cast<Rank>(rank), kBadInput);
                               } else {
                                 will_submit(world, kept[0], rank);
                               }
                             }
                           });
}

TEST_CASE("what runs as a stream fails where a rank refuses it, on every rank") {
  check_failing_operations(
      ErrorCode::input, [](PeerWorld& world, std::size_t n, auto&, Random& random) {
        const std::size_t refusing = below(n, random);
        for (std::size_t rank = 0; rank < n; ++rank) {
          if (rank == refusing) {
            world.will_refuse(static_cast<Rank>(rank), kBadInput);
          } else {
            world.will_stream(static_cast<Rank>(rank), {{DType::float32, ReduceOp::sum, 1000}});
          }
        }
      });
}

// --- What is chosen, and who is waited for ---

Call automatic(std::uint64_t count) { return {.descriptor = {.count = count, .is_sparse = true}}; }

TEST_CASE("all ranks choose the same algorithm, by what all of them bring") {
  int streams = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t n = 2 + below(5, random);
    const Call call = automatic(pick<std::uint64_t>({100, 50'000, 2'000'000}, random));
    const std::uint64_t most = call.descriptor.count / pick({1000u, 30u, 2u}, random);
    SparseCollective collective = sparse_collective(call, n, most, random, [&](std::size_t count) {
      return random_small_numbers(count, DType::float32, random);
    });
    PeerWorld world(static_cast<Rank>(n), seed);
    will_submit_all(world, collective);
    world.run();
    const bool is_stream = world.has_chosen_stream(0, 0);
    streams += is_stream;
    for (std::size_t rank = 0; rank < n; ++rank) {
      REQUIRE(world.has_chosen_stream(static_cast<Rank>(rank), 0) == is_stream);
      REQUIRE(world.has_ended(static_cast<Rank>(rank), 0));
      REQUIRE_FALSE(world.failure(static_cast<Rank>(rank), 0));
    }
    if (!is_stream) check_done(world, collective, 0);
    world.check_nothing_left();
  }
  CHECK(streams > 0);
  CHECK(streams < 24);
}

TEST_CASE(
    "short vectors are on their way before all have joined, and wait for those who are late") {
  Random random(1);
  SparseCollective collective = random_vectors(automatic(500), 4, random);
  PeerWorld world(4, 1);
  world.set_late(2);
  will_submit_all(world, collective);
  world.run();
  check_done(world, collective, 0);
  CHECK(world.counters().early_parts == 3);
  world.check_nothing_left();
}

TEST_CASE("a rank that has not called is what the others wait for") {
  Random random(2);
  for (const std::uint64_t count : {100u, 100'000u}) {
    SparseCollective collective = random_vectors(automatic(count), 4, random);
    PeerWorld world(4, 1);
    for (const std::size_t rank : {0u, 1u, 3u}) will_submit(world, collective, rank);
    world.run();
    for (const Rank rank : {0, 1, 3}) {
      CHECK_FALSE(world.has_ended(rank, 0));
      CHECK((world.missing(rank, 0) == std::vector<Rank>{2}));
    }
    CHECK(world.missing(2, 0).empty());
    will_submit(world, collective, 2);
    world.run();
    CHECK(world.missing(0, 0).empty());
  }
}

}  // namespace peer_failures_test
