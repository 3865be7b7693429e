// Communicators when something goes wrong: whatever it is, every operation ends on every rank, with
// an error that names who is to blame.
#include <doctest/doctest.h>
#include <poll.h>

#include <array>
#include <string>

#include "cluster.hpp"
#include "wire/frame.hpp"

namespace comm_failures_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr wire::Descriptor kSmall{DType::float32, ReduceOp::sum, 10};
// Large enough for every owner to have a chunk of it.
constexpr wire::Descriptor kLarge{DType::float32, ReduceOp::sum, 100'000};

Collective collective_of(const wire::Descriptor& descriptor, std::size_t world_size,
                         Random& random) {
  return random_collective(descriptor, world_size, 256, {0.5}, random);
}

bool mentions(const Status& failure, const std::string& text) {
  return failure && failure->message.find(text) != std::string::npos;
}

// Lets other threads get on for a random while, up to a millisecond.
void dawdle(Random& random) {
  std::this_thread::sleep_for(std::chrono::microseconds{below(1000, random)});
}

// --- Ranks that disagree ---

TEST_CASE("after a mismatch the communicator goes on") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    Random random(lanes);
    Cluster cluster = Cluster::colocated(3, lanes);
    for (const wire::Descriptor& odd : {wire::Descriptor{DType::float32, ReduceOp::sum, 100'001},
                                        {DType::float64, ReduceOp::sum, 100'000},
                                        {DType::float32, ReduceOp::max, 100'000},
                                        {DType::float32, ReduceOp::sum, 0}}) {
      CAPTURE(wire::describe(odd));
      Collective usual = collective_of(kLarge, 3, random);
      Collective other = collective_of(odd, 3, random);
      std::vector<OperationPtr> operations;
      for (std::size_t rank = 0; rank < 3; ++rank) {
        operations.push_back(submit(cluster, rank == 1 ? other : usual, rank));
      }
      for (const OperationPtr& operation : operations) {
        const Status failure = outcome(operation);
        REQUIRE(failure);
        CHECK(failure->code == ErrorCode::mismatch);
        CHECK(mentions(failure, "rank 1 called " + wire::describe(odd)));
      }
      check_works(cluster, kLarge, random);
    }
    CHECK(cluster[0].stats().operations_failed == 4);
    cluster.close();
  }
}

TEST_CASE("a rank learns of a mismatch in an operation that it has not issued yet") {
  Random random(3);
  Cluster cluster = Cluster::colocated(3, 2);
  Collective usual = collective_of(kLarge, 3, random);
  Collective other = collective_of(kSmall, 3, random);
  const OperationPtr a = submit(cluster, usual, 0);
  const OperationPtr b = submit(cluster, other, 1);
  for (const OperationPtr& operation : {a, b}) {
    CHECK(outcome(operation)->code == ErrorCode::mismatch);
  }
  CHECK(outcome(submit(cluster, usual, 2))->code == ErrorCode::mismatch);
  check_works(cluster, kLarge, random);
  cluster.close();
}

TEST_CASE("a mismatch behind operations that still wait for their turn") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::deque<Collective> good;
    for (int i = 0; i < 4; ++i) {
      good.push_back(
          random_collective({DType::float32, ReduceOp::sum, 600'000}, 2, 256, {1}, random));
    }
    Collective usual = collective_of(kSmall, 2, random);
    Collective other = collective_of(kLarge, 2, random);
    Cluster cluster = Cluster::colocated(2, 1 + seed % 2);
    std::vector<std::vector<OperationPtr>> operations(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (Collective& collective : good) {
        operations[rank].push_back(submit(cluster, collective, rank));
      }
      operations[rank].push_back(submit(cluster, rank == 0 ? usual : other, rank));
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < good.size(); ++i) {
        check_done(operations[rank][i], good[i], rank);
      }
      const Status failure = outcome(operations[rank].back());
      REQUIRE(failure);
      CHECK(failure->code == ErrorCode::mismatch);
    }
    check_works(cluster, kLarge, random);
    cluster.close();
  }
}

// --- Ranks that go ---

TEST_CASE("a rank that dies is named on all others") {
  Random values(4);
  Collective first = collective_of(kLarge, 3, values);
  Collective second = collective_of(kLarge, 3, values);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto victim = static_cast<Rank>(below(3, random));
    Cluster cluster = Cluster::colocated_but(3, 1 + seed % 2, victim);
    {
      MuteRank mute(cluster.topology(), victim, false, cluster.sockets_of(victim));
      mute.submit(0, arguments_of(first, static_cast<std::size_t>(victim)));
      std::vector<OperationPtr> operations;
      for (const std::size_t rank : cluster.present()) {
        operations.push_back(submit(cluster, first, rank));
        operations.push_back(submit(cluster, second, rank));
      }
      dawdle(random);
      mute.die();
      for (const OperationPtr& operation : operations) {
        const Status failure = outcome(operation);
        if (operation->seq() == 0 && !failure) continue;  // It was quick enough.
        check_failed(failure, ErrorCode::peer_lost, victim);
        CHECK(mentions(failure, "rank " + std::to_string(victim)));
      }
    }
    for (const std::size_t rank : cluster.present()) {
      check_failed(outcome(submit(cluster, second, rank)), ErrorCode::peer_lost, victim);
    }
  }
}

TEST_CASE("a rank that has left is named by later operations") {
  Random random(4);
  Cluster cluster = Cluster::colocated(3, 2);
  check_works(cluster, kLarge, random);
  cluster[1].close(kPatience);
  Collective collective = collective_of(kLarge, 3, random);
  for (const std::size_t rank : {0u, 2u}) {
    const Status failure = outcome(submit(cluster, collective, rank));
    check_failed(failure, ErrorCode::peer_lost, 1);
    CHECK(mentions(failure, "closed its communicator while others went on"));
  }
}

TEST_CASE("a communicator may go with operations in flight, and the others learn of it") {
  Random random(5);
  Collective collective = collective_of(kLarge, 3, random);
  Cluster cluster = Cluster::colocated(3, 2);
  const OperationPtr unfinished = submit(cluster, collective, 0);
  cluster.destroy(0);
  check_failed(outcome(unfinished), ErrorCode::aborted, 0);
  for (const std::size_t rank : {1u, 2u}) {
    const Status failure = outcome(submit(cluster, collective, rank));
    check_failed(failure, ErrorCode::aborted, 0);
    CHECK(mentions(failure, "operations in flight"));
  }
}

// --- Ranks that are late ---

TEST_CASE("a rank that is late is named on all ranks") {
  Random random(6);
  Collective collective = collective_of(kLarge, 3, random);
  Cluster cluster = Cluster::colocated(3, 1);
  comm::Operation::Arguments limited = arguments_of(collective, 0);
  limited.deadline = comm::Clock::now() + std::chrono::milliseconds{200};
  const OperationPtr a = cluster[0].submit(limited);
  const OperationPtr b = submit(cluster, collective, 1);
  for (const OperationPtr& operation : {a, b}) {
    const Status failure = outcome(operation);
    check_failed(failure, ErrorCode::timeout, 2);
    CHECK(mentions(failure, "rank(s) 2"));
  }
  check_failed(outcome(submit(cluster, collective, 2)), ErrorCode::timeout, 2);
}

TEST_CASE("a deadline ends an operation even if nobody can tell who is late") {
  Random random(7);
  Collective collective = collective_of(kSmall, 3, random);  // Its only chunk belongs to rank 0.
  Cluster cluster = Cluster::colocated(3, 1);
  comm::Operation::Arguments arguments = arguments_of(collective, 1);
  arguments.deadline = comm::Clock::now() + std::chrono::milliseconds{20};
  const Status failure = outcome(cluster[1].submit(arguments));
  REQUIRE(failure);
  CHECK(failure->code == ErrorCode::timeout);
  CHECK(mentions(failure, "rank(s) 0"));
}

TEST_CASE("a deadline that is met does no harm") {
  Random random(8);
  Collective collective = collective_of(kLarge, 2, random);
  Cluster cluster = Cluster::colocated(2, 2);
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    comm::Operation::Arguments arguments = arguments_of(collective, rank);
    arguments.deadline = comm::Clock::now() + kPatience;
    operations.push_back(cluster[rank].submit(arguments));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) check_done(operations[rank], collective, rank);
  check_works(cluster, kLarge, random);
  cluster.close();
}

// --- Aborts ---

TEST_CASE("an abort at any moment ends everything on every rank") {
  Random sizes(11);
  std::deque<Collective> collectives;  // Their results do not matter, so they serve every time.
  for (const auto& descriptor : {kLarge, kSmall, kLarge, kSmall, kLarge}) {
    collectives.push_back(collective_of(descriptor, 3, sizes));
  }
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto aborting = below(3, random);
    std::ranges::shuffle(collectives, random);
    Cluster cluster = Cluster::colocated(3, 1 + seed % 2);
    std::vector<OperationPtr> operations;
    for (Collective& collective : collectives) {
      for (std::size_t rank = 0; rank < 3; ++rank) {
        if (!one_in(10, random)) operations.push_back(submit(cluster, collective, rank));
      }
    }
    std::jthread aborter([&, wait = below(1000, random)] {
      std::this_thread::sleep_for(std::chrono::microseconds{wait});
      cluster[aborting].abort("enough");
    });
    if (one_in(2, random)) aborter.join();
    for (const OperationPtr& operation : operations) {
      const Status failure = outcome(operation);
      const bool is_mismatch = failure && failure->code == ErrorCode::mismatch;
      if (failure && !is_mismatch) {
        check_failed(failure, ErrorCode::aborted, static_cast<Rank>(aborting));
        CHECK(mentions(failure, "aborted: enough"));
      }
    }
    if (aborter.joinable()) aborter.join();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const OperationPtr late = submit(cluster, collectives[0], rank);
      if (rank == aborting) {
        check_failed(outcome(late), ErrorCode::aborted, static_cast<Rank>(aborting));
      }
    }
  }
}

TEST_CASE("ranks may all abort at once") {
  Random random(12);
  Collective collective = collective_of(kLarge, 3, random);
  for (int repeat = 0; repeat < 20; ++repeat) {
    CAPTURE(repeat);
    Cluster cluster = Cluster::colocated(3, 2);
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      operations.push_back(submit(cluster, collective, rank));
    }
    cluster.at_once([&](std::size_t rank) { cluster[rank].abort("all at once"); });
    for (const OperationPtr& operation : operations) {
      const Status failure = outcome(operation);
      if (failure) CHECK(failure->code == ErrorCode::aborted);
    }
  }
}

// --- Many operations at once ---

TEST_CASE("thousands of operations wait, and end in their order") {
  constexpr std::size_t many = 5000;
  const wire::Descriptor descriptor{DType::int32, ReduceOp::sum, 1};
  Cluster cluster = Cluster::colocated(2, 2);
  std::vector<std::int32_t> tensors(2 * many, 3);
  std::vector<OperationPtr> operations;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto* const memory = reinterpret_cast<std::byte*>(&tensors[i]);
    operations.push_back(cluster[i / many].submit({memory, memory, {.descriptor = descriptor}}));
  }
  for (const std::size_t last : {many - 1, 2 * many - 1}) REQUIRE_FALSE(outcome(operations[last]));
  CHECK(std::ranges::all_of(operations, [](const auto& each) { return each->ended(); }));
  CHECK((tensors == std::vector<std::int32_t>(2 * many, 6)));
  cluster.close();
}

// --- Peers that talk nonsense ---

// Reads what has come by now, and until nothing more comes for a moment.
std::string all_that_is_said(int fd) {
  std::string said;
  std::array<char, 1 << 16> part;
  for (pollfd ready{fd, POLLIN, 0}; ::poll(&ready, 1, 200) > 0;) {
    const ssize_t got = ::recv(fd, part.data(), part.size(), 0);
    if (got <= 0) break;
    said.append(part.data(), static_cast<std::size_t>(got));
  }
  return said;
}

// On both lanes, so that one has ended by the time that the other hears of it; the peer that did it
// is told on both.
void check_breaks(const Buffer& bytes, ErrorCode code) {
  Random random(9);
  Collective collective = collective_of(kLarge, 3, random);
  Cluster cluster = Cluster::colocated_but(3, 2, 2);
  Sockets& sockets = cluster.sockets_of(2);
  const OperationPtr a = submit(cluster, collective, 0);
  const OperationPtr b = submit(cluster, collective, 1);
  for (const std::size_t lane : {0u, 1u}) {
    REQUIRE(::send(sockets[lane][0].fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  for (const OperationPtr& operation : {a, b}) check_failed(outcome(operation), code, 2);
  for (const std::size_t lane : {0u, 1u}) {
    CHECK(all_that_is_said(sockets[lane][0].fd()).find("lost rank 2: ") != std::string::npos);
  }
}

TEST_CASE("a peer that breaks the protocol is named on all ranks") {
  Random random(10);
  check_breaks(Buffer(64, std::byte{0xee}), ErrorCode::protocol);
  for (const wire::FrameKind kind : {wire::FrameKind::hello, wire::FrameKind::segment,
                                     wire::FrameKind::result, wire::FrameKind::goodbye}) {
    CAPTURE(static_cast<int>(kind));
    wire::FrameHeader header{.kind = kind, .chunk = 3};
    if (kind == wire::FrameKind::hello) header.payload = 32;
    if (kind == wire::FrameKind::segment) {
      header.format = wire::Format::dense;
      header.payload = 10;
      header.next = 4;
    }
    Buffer bytes(wire::kHeaderBytes + header.payload);
    wire::encode(header, std::span(bytes).first<wire::kHeaderBytes>());
    check_breaks(bytes, ErrorCode::protocol);
  }
}

TEST_CASE("a peer may say goodbye for nobody but itself") {
  const wire::FrameHeader header{.kind = wire::FrameKind::goodbye, .chunk = 1};
  Buffer bytes(wire::kHeaderBytes);
  wire::encode(header, std::span(bytes).first<wire::kHeaderBytes>());
  check_breaks(bytes, ErrorCode::protocol);
}

}  // namespace comm_failures_test
