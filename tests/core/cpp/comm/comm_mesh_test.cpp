// Meshes: connections come when they are needed, groups share them, and what becomes of one group
// is no other's business.
#include <doctest/doctest.h>

#include "allocations.hpp"
#include "mesh_cluster.hpp"
#include "sockets.hpp"
#include "state_tables.hpp"

namespace comm_mesh_test {

using namespace sparsewire;
using namespace sparsewire::test;

// One chunk, so that one owner serves it; and one for every owner.
constexpr wire::Descriptor kSmall{DType::float32, ReduceOp::sum, 10};
constexpr wire::Descriptor kLarge{DType::float32, ReduceOp::sum, 200'000};

const std::vector<std::uint32_t> kAll{0, 1, 2, 3};

// --- Connections ---

TEST_CASE("the table of dialling has no other rows") {
  using comm::Dial;
  using comm::DialStep;
  for_each_row(comm::kDialTransitions, [](Dial from, DialStep step, Dial to) {
    CHECK(next_state(comm::kDialTransitions, from, step) == to);
  });
  check_refuses_the_rest(comm::kDialTransitions,
                         {Dial::absent, Dial::dialling, Dial::connected, Dial::lost},
                         {DialStep::ask, DialStep::adopt, DialStep::lose});
}

TEST_CASE("who has nothing to say to each other is not connected") {
  Random random(1);
  MeshCluster mesh(4);
  const Group group = mesh.join_all(1, kAll);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(mesh[rank].connections() == 0);
  check_works(group, kSmall, random);
  CHECK(mesh[0].connections() == 3);
  for (std::size_t rank = 1; rank < 4; ++rank) CHECK(mesh[rank].connections() == 1);
  check_works(group, kLarge, random);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(mesh[rank].connections() == 3);
}

TEST_CASE("ten groups of all ranks have the connections of one, and their sums at once") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    CAPTURE(lanes);
    Random random(2);
    MeshCluster mesh(4, {.lanes = lanes});
    std::vector<Group> groups;
    std::deque<Collective> collectives;
    std::vector<OperationPtr> operations;
    for (std::uint32_t number = 0; number < 10; ++number) {
      groups.push_back(mesh.join_all(number, number % 2 ? kAll : std::vector{3u, 1u, 0u, 2u}));
      collectives.push_back(random_collective(kLarge, 4, 256, {0.5}, random));
    }
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t rank = 0; rank < 4; ++rank) {
        operations.push_back(groups[i][rank]->submit(arguments_of(collectives[i], rank)));
      }
    }
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t rank = 0; rank < 4; ++rank) {
        check_done(operations[4 * i + rank], collectives[i], rank);
      }
    }
    for (std::size_t rank = 0; rank < 4; ++rank) CHECK(mesh[rank].connections() == 3);
  }
}

TEST_CASE("a group is of some ranks, in any order") {
  Random random(3);
  MeshCluster mesh(4);
  const Group some = mesh.join_all(7, {3, 1});
  const Group others = mesh.join_all(8, {2, 3, 0});
  for (int i = 0; i < 5; ++i) {
    check_works(some, kLarge, random);
    check_works(others, kLarge, random);
  }
  CHECK(mesh[1].connections() == 1);
  CHECK(mesh[3].connections() == 3);
}

TEST_CASE("the bits are those of a mesh of its own") {
  Random random(4);
  MeshCluster mesh(3);
  const Group group = mesh.join_all(1, {0, 1, 2});
  Cluster cluster = Cluster::colocated(3, 1);
  Collective collective = random_collective(kLarge, 3, 256, {0.5}, random);
  Collective again = collective;
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    operations.push_back(group[rank]->submit(arguments_of(collective, rank)));
    operations.push_back(submit(cluster, again, rank));
  }
  for (const OperationPtr& operation : operations) REQUIRE_FALSE(outcome(operation));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK((collective.ranks[rank].result() == again.ranks[rank].result()));
  }
  cluster.close();
}

// --- Memory ---

TEST_CASE("memory is dealt out by the number of those who share it") {
  constexpr std::size_t kMiB = 1u << 20;
  const auto few = comm::MemoryShare::of(64 * kMiB, 1, 4, 3);
  CHECK(few.ring == net::kMaxRingBytes);
  CHECK(few.staging == net::kMaxStagingBytes);
  CHECK(few.queued == 32 * kMiB);
  const auto many = comm::MemoryShare::of(64 * kMiB, 1, 256, 255);
  CHECK(many.ring == 64 * 1024);
  CHECK(many.staging == 32 * 1024);
  const auto lanes = comm::MemoryShare::of(64 * kMiB, 4, 256, 255);
  CHECK(lanes.ring == net::kMinRingBytes);
  CHECK(lanes.staging == net::kMinStagingBytes);
  CHECK(lanes.queued == 8 * kMiB);
  const auto elsewhere = comm::MemoryShare::of(8 * kMiB, 1, 1000, 0);
  CHECK(elsewhere.ring == net::kMaxRingBytes);
}

TEST_CASE("an idle connection holds nothing to read into") {
  constexpr std::uint32_t ranks = 16;
  Random random(14);
  const std::size_t before = Allocations::held();
  MeshCluster mesh(ranks);
  std::vector<std::uint32_t> members(ranks);
  std::iota(members.begin(), members.end(), 0u);
  const Group group = mesh.join_all(1, members);
  for (int i = 0; i < 3; ++i) check_works(group, kLarge, random);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) CHECK(mesh[rank].connections() == ranks - 1);
  // One buffer for each end would be 15 MiB.
  CHECK(Allocations::held() - before < 8u << 20);
}

// --- Groups that come and go ---

TEST_CASE("frames of a group that is not here yet wait for it") {
  Random random(5);
  MeshCluster mesh(2);
  const Group first = mesh.join_all(1, {0, 1});
  check_works(first, kLarge, random);
  Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
  const auto early = mesh.join(2, {0, 1}, 0);
  const OperationPtr a = early->submit(arguments_of(collective, 0));
  CHECK_FALSE(a->wait(std::chrono::milliseconds{50}));
  const auto late = mesh.join(2, {0, 1}, 1);
  const OperationPtr b = late->submit(arguments_of(collective, 1));
  check_done(a, collective, 0);
  check_done(b, collective, 1);
  check_works(first, kLarge, random);
}

TEST_CASE("a group that a rank never joins fails on the others, and no other group does") {
  Random random(6);
  MeshCluster mesh(2, {.start_patience = std::chrono::milliseconds{300}});
  const Group first = mesh.join_all(1, {0, 1});
  check_works(first, kLarge, random);
  Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
  const auto alone = mesh.join(2, {0, 1}, 0);
  const Status failure = outcome(alone->submit(arguments_of(collective, 0)));
  REQUIRE(failure);
  CHECK(failure->code == ErrorCode::peer_lost);
  CHECK(failure->message.find("has not joined the group") != std::string::npos);
  check_works(first, kLarge, random);
}

// Everybody else would wait five minutes before it gave up what it does not know.
TEST_CASE("a group that a rank never joins is no business of ranks that are not in it") {
  Random random(15);
  MeshCluster mesh(3, {.start_patience = std::chrono::milliseconds{300}, .impatient = {0}});
  const Group all = mesh.join_all(1, {0, 1, 2});
  check_works(all, kLarge, random);
  Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
  const auto alone = mesh.join(2, {0, 1}, 1);
  const Status failure = outcome(alone->submit(arguments_of(collective, 1)));
  REQUIRE(failure);
  CHECK(failure->message.find("has not joined the group") != std::string::npos);
  for (int i = 0; i < 3; ++i) check_works(all, kLarge, random);
}

TEST_CASE("who comes to a group after a rank has given it up is told, too") {
  Random random(16);
  MeshCluster mesh(3, {.start_patience = std::chrono::milliseconds{300}, .impatient = {0}});
  const Group all = mesh.join_all(1, {0, 1, 2});
  check_works(all, kLarge, random);
  Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
  const auto first = mesh.join(2, {0, 1}, 1);
  REQUIRE(outcome(first->submit(arguments_of(collective, 1))));
  const auto second = mesh.join(2, {0, 2}, 1);
  const Status failure = outcome(second->submit(arguments_of(collective, 1)));
  REQUIRE(failure);
  CHECK(failure->message.find("has not joined the group") != std::string::npos);
  check_works(all, kLarge, random);
}

TEST_CASE("a rank that fails to join a group tells its members at once, and nobody else") {
  for (const bool is_first : {false, true}) {
    for (const bool is_connected : {false, true}) {
      CAPTURE(is_first);
      CAPTURE(is_connected);
      Random random(17);
      MeshCluster mesh(3, {.lanes = 2});
      const Group all = mesh.join_all(1, {0, 1, 2});
      if (is_connected) check_works(all, kLarge, random);
      Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
      const auto fail = [&] { mesh[0].fail_group({2, {0, 1}}, 0, "no thread was left"); };
      if (is_first) fail();
      const auto member = mesh.join(2, {0, 1}, 1);
      const OperationPtr operation = member->submit(arguments_of(collective, 1));
      if (!is_first) fail();
      const Status failure = outcome(operation);
      check_failed(failure, ErrorCode::peer_lost, 0);
      CHECK(failure->message == "rank 0 could not join the group: no thread was left");
      for (int i = 0; i < 3; ++i) check_works(all, kLarge, random);
    }
  }
}

// As after a meeting that was given up, where nobody knows whom it took in.
TEST_CASE("a rank that fails to join a group of members that it does not know answers those") {
  for (const bool is_first : {false, true}) {
    CAPTURE(is_first);
    Random random(18);
    MeshCluster mesh(3, {.lanes = 2});
    const Group all = mesh.join_all(1, {0, 1, 2});
    check_works(all, kLarge, random);
    Collective collective = random_collective(kLarge, 2, 256, {0.5}, random);
    const auto fail = [&] { mesh[0].fail_group({2, {}}, 0, "it was too late"); };
    if (is_first) fail();
    const auto member = mesh.join(2, {0, 1}, 1);
    const OperationPtr operation = member->submit(arguments_of(collective, 1));
    if (!is_first) fail();
    check_failed(outcome(operation), ErrorCode::peer_lost, 0);
    check_works(all, kLarge, random);
  }
}

TEST_CASE("a group that aborts or leaves harms no other") {
  Random random(7);
  MeshCluster mesh(3);
  const Group staying = mesh.join_all(1, {0, 1, 2});
  for (std::uint32_t number = 2; number < 22; ++number) {
    CAPTURE(number);
    Group going = mesh.join_all(number, {2, 0, 1});
    Collective collective = random_collective(kLarge, 3, 256, {0.5}, random);
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      operations.push_back(going[rank]->submit(arguments_of(collective, rank)));
    }
    if (number % 2) {
      going[2]->abort("enough");
    } else {
      going[2]->close(kPatience);
    }
    for (const OperationPtr& operation : operations) {
      check_failed(outcome(operation), number % 2 ? ErrorCode::aborted : ErrorCode::peer_lost, 2);
    }
    check_works(staying, kLarge, random);
  }
}

TEST_CASE("who is connected after a group's end is told of it") {
  for (const bool aborts : {false, true}) {
    CAPTURE(aborts);
    Random random(8);
    MeshCluster mesh(3);
    const Group other = mesh.join_all(1, {0, 1, 2});
    Group group = mesh.join_all(2, {0, 1, 2});
    aborts ? group[1]->abort("enough") : group[1]->close(kPatience);
    if (!aborts) group[1].reset();
    CHECK(mesh[1].connections() == 0);
    Collective collective = random_collective(kSmall, 3, 256, {0.5}, random);
    for (const std::size_t rank : {0u, 2u}) {
      const Status failure = outcome(group[rank]->submit(arguments_of(collective, rank)));
      check_failed(failure, aborts ? ErrorCode::aborted : ErrorCode::peer_lost, 1);
    }
    check_works(other, kLarge, random);
  }
}

// Its lane may be between looking at what was posted and looking at its orders.
TEST_CASE("what was submitted ends though its group leaves at once") {
  Random random(11);
  MeshCluster mesh(2);
  Collective collective = random_collective(kSmall, 2, 256, {0.5}, random);
  for (std::uint32_t number = 1; number <= 3000; ++number) {
    CAPTURE(number);
    const Group group = mesh.join_all(number, {0, 1});
    std::vector<OperationPtr> operations;
    for (std::uint64_t left = 1 + below(20, random); left != 0; --left) {
      operations.push_back(group[0]->submit(arguments_of(collective, 0)));
    }
    group[0]->close(std::chrono::seconds{0});
    for (const OperationPtr& operation : operations) {
      REQUIRE(operation->ended());
      CHECK(operation->failure()->code == ErrorCode::aborted);
    }
  }
}

// Its lane may be between welcoming groups and looking at their orders.
TEST_CASE("a group ends that leaves as soon as it has joined") {
  Random random(17);
  MeshCluster mesh(2);
  const auto staying = mesh.join(1, {0, 1}, 0);
  for (std::uint32_t number = 2; number <= 3'000; ++number) {
    const auto passing = mesh.join(number, {0, 1}, 0);
    for (std::uint64_t left = below(200, random); left != 0; --left) std::this_thread::yield();
    passing->close(std::chrono::seconds{0});
  }
  CHECK(mesh[0].connections() == 0);
}

TEST_CASE("what a group has sent reaches the others though it leaves at once") {
  Random random(9);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    MeshCluster mesh(3);
    Group group = mesh.join_all(1, {0, 1, 2});
    Collective collective = random_collective(kLarge, 3, 256, {0.5}, random);
    std::vector<std::thread> ranks;
    std::vector<Status> failures(3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        const OperationPtr operation = group[rank]->submit(arguments_of(collective, rank));
        (void)operation->wait(kPatience);
        failures[rank] = operation->failure();
        group[rank]->close(kPatience);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Status& failure : failures) CHECK_FALSE(failure);
  }
}

TEST_CASE("groups with nothing to do are no part of turns") {
  Random random(18);
  const std::vector<std::uint32_t> members{0, 1, 2};
  MeshCluster mesh(3, {.lanes = 2});
  std::vector<Group> idle;
  for (std::uint32_t number = 0; number <= 100; ++number) {
    idle.push_back(mesh.join_all(number, members));
    check_works(idle.back(), kSmall, random);
  }
  const auto busy_on = [&](std::uint32_t rank) {
    return mesh[rank].lane(0).busy() + mesh[rank].lane(1).busy();
  };
  wait_until([&] { return busy_on(0) + busy_on(1) + busy_on(2) == 0; });
  Collective collective = random_collective(kSmall, 3, 256, {0.5}, random);
  const OperationPtr waiting = idle[50][0]->submit(arguments_of(collective, 0));
  wait_until([&] { return busy_on(0) == 1; });
  const OperationPtr last[] = {idle[50][1]->submit(arguments_of(collective, 1)),
                               idle[50][2]->submit(arguments_of(collective, 2))};
  check_done(waiting, collective, 0);
  for (const OperationPtr& operation : last) CHECK_FALSE(outcome(operation));
}

// A lane keeps up to four buffers to read into, each from the first time that it needs one more.
TEST_CASE("groups that have ended leave nothing in memory") {
  Random random(18);
  const std::vector<std::uint32_t> members{0, 1, 2};
  constexpr std::size_t kLanes = 2, kBuffers = 4, kRest = 8 * 1024;
  constexpr std::uint32_t kGroups = 620, kFirst = 20;
  const comm::MemoryShare share{.staging = net::kMinStagingBytes};
  MeshCluster mesh(3, {.lanes = kLanes, .share = share});
  const std::size_t most = 3 * kLanes * kBuffers * share.staging + kRest;
  static_assert(3 * kLanes * kBuffers * net::kMinStagingBytes + kRest < 700 * (kGroups - kFirst));
  const Group staying = mesh.join_all(0, members);
  std::size_t held = 0;
  for (std::uint32_t epoch = 0; epoch < kGroups; ++epoch) {
    Group passing = mesh.join_all(1u << 20 | 2 * epoch, members);
    check_works(passing, kSmall, random);
    for (auto& member : passing) member->close(std::chrono::seconds{0});
    passing.clear();
    check_works(staying, kSmall, random);
    if (epoch == kFirst) held = Allocations::held();
  }
  wait_until([&] { return Allocations::held() < held + most; });
}

// --- Ranks that are not there ---

TEST_CASE("a dead rank is named by all, also by those that have nothing to say to it") {
  Random random(10);
  for (const wire::Descriptor& descriptor : {kSmall, kLarge}) {
    for (const std::uint32_t victim : {0u, 2u, 3u}) {
      CAPTURE(victim);
      MeshCluster mesh(4, {.dead = {victim}});
      Group group;
      std::vector<OperationPtr> operations;
      Collective collective = random_collective(descriptor, 4, 256, {0.5}, random);
      for (const std::uint32_t rank : kAll) {
        if (rank == victim) continue;
        group.push_back(mesh.join(1, kAll, static_cast<Rank>(rank)));
        operations.push_back(group.back()->submit(arguments_of(collective, rank)));
      }
      for (const OperationPtr& operation : operations) {
        const Status failure = outcome(operation);
        check_failed(failure, ErrorCode::peer_lost, static_cast<Rank>(victim));
        CHECK(failure->message.find("nobody is there") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a rank that does not answer is lost after the patience for peers") {
  Random random(11);
  for (const std::uint32_t lanes : {1u, 2u}) {
    MeshCluster mesh(3, {.lanes = lanes, .patience = std::chrono::seconds{1}, .frozen = {2}});
    Collective collective = random_collective(kSmall, 3, 256, {0.5}, random);
    const auto a = mesh.join(1, {0, 1, 2}, 0);
    const auto b = mesh.join(1, {0, 1, 2}, 1);
    const OperationPtr first = a->submit(arguments_of(collective, 0));
    const OperationPtr second = b->submit(arguments_of(collective, 1));
    for (const OperationPtr& operation : {first, second}) {
      const Status failure = outcome(operation);
      check_failed(failure, ErrorCode::peer_lost, 2);
      CHECK(failure->message.find("no sign of life") != std::string::npos);
    }
  }
}

TEST_CASE("a connection that is lost ends the groups of the two, and no others") {
  Random random(12);
  MeshCluster mesh(3);
  const Group all = mesh.join_all(1, {0, 1, 2});
  const Group both = mesh.join_all(2, {1, 2});
  const Group spared = mesh.join_all(3, {0, 1});
  for (const Group* group : {&all, &both, &spared}) check_works(*group, kLarge, random);
  CHECK(mesh[1].is_whole());
  mesh.cut(1, 2);
  Collective collective = random_collective(kLarge, 3, 256, {0.5}, random);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Status failure = outcome(all[rank]->submit(arguments_of(collective, rank)));
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::peer_lost);
  }
  for (const auto& rank : both) {
    CHECK(outcome(rank->submit(arguments_of(collective, 0)))->code == ErrorCode::peer_lost);
  }
  check_works(spared, kLarge, random);
  CHECK_FALSE(mesh[1].is_whole());
  CHECK(mesh[0].is_whole());
}

TEST_CASE("a group that comes after a connection was lost fails at once") {
  Random random(13);
  MeshCluster mesh(2);
  const Group first = mesh.join_all(1, {0, 1});
  check_works(first, kLarge, random);
  mesh.cut(0, 1);
  wait_until([&] { return !mesh[0].is_whole() && !mesh[1].is_whole(); });
  const Group second = mesh.join_all(2, {0, 1});
  Collective collective = random_collective(kSmall, 2, 256, {0.5}, random);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    check_failed(outcome(second[rank]->submit(arguments_of(collective, rank))),
                 ErrorCode::peer_lost, static_cast<Rank>(1 - rank));
  }
}

// The peer tells all ranks that this one is lost as soon as it sees its connection close.
TEST_CASE("a lane says why a peer is lost before the peer can see it") {
  struct Listener final : comm::LaneListener, comm::MeshListener {
    explicit Listener(int peer) : peer(peer) {}
    void operation_left(std::uint64_t) override {}
    void operation_failed(std::uint64_t, Error) override {}
    void operation_chosen(std::uint64_t, proto::Route, const Order&) override {}
    void peer_silent(const comm::Silence&) override {}
    void datagrams_troubled(const std::string&) override {}
    void on_asked(std::uint32_t) override {}
    void broken(Error) override {
      std::byte byte{};
      has_peer_seen_it = ::recv(peer, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
      is_told.set_value();
    }
    const int peer;
    std::atomic<bool> has_peer_seen_it = true;
    std::promise<void> is_told;
  };
  SocketPair pair = connected_pair();
  make_non_blocking(pair.a);
  Listener listener(pair.b.fd());
  std::array<int, 2> sockets{-1, pair.a.release()};
  comm::Lane lane({.peers = 2}, 0, sockets, listener);
  const auto group = std::make_shared<comm::LaneGroup>(
      comm::LanePlace{
          .topology = {.world_size = 2, .owners = 2}, .lane = 0, .rank = 0, .dedicated = false},
      7, std::vector<std::uint32_t>{0, 1}, lane, listener);
  lane.join(group);
  lane.start();
  REQUIRE(::shutdown(pair.b.fd(), SHUT_WR) == 0);
  listener.is_told.get_future().wait();
  CHECK_FALSE(listener.has_peer_seen_it);
  group->leave(0, std::chrono::milliseconds{0});
  group->await_end();
  lane.stop();
  lane.await_end();
}

}  // namespace comm_mesh_test
