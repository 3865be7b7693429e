// Memory that runs out and system calls that fail: they end a communicator by an error on every
// rank, and never the process.
#include <doctest/doctest.h>

#include <filesystem>

#include "allocations.hpp"
#include "mesh_cluster.hpp"
#include "slot_cluster.hpp"
#include "sparse_cluster.hpp"

namespace comm_exceptions_test {

using namespace sparsewire;
using namespace sparsewire::test;

// What is in flight while something fails; made once, because its results do not matter.
struct Calls {
  Calls() {
    Random random(1);
    dense = random_collective({DType::float32, ReduceOp::sum, 200'000}, 3, 256, {0.3}, random);
    for (const wire::Algorithm algorithm : kAlgorithms) {
      sparse.push_back(large_sparse({.algorithm = algorithm}, 3, random));
    }
  }
  std::vector<OperationPtr> submit_to(Cluster& cluster) {
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      operations.push_back(submit(cluster, dense, rank));
      for (const auto& collective : sparse) {
        operations.push_back(submit(cluster, collective, rank));
      }
    }
    return operations;
  }
  Collective dense;
  std::deque<SparseCollective> sparse;
};

bool says_why(const Status& failure) {
  const bool says_memory = failure->message.find("out of memory") != std::string::npos;
  const bool is_expected =
      failure->code == ErrorCode::aborted || failure->code == ErrorCode::resources;
  return (is_expected && says_memory) || failure->code == ErrorCode::peer_lost;
}

// Of many, for a while, or for good.
TEST_CASE("a lane that runs out of memory ends its communicator, on every rank") {
  Calls calls;
  const Allocations::Spared spared;
  for (const std::int64_t refused : {1, 20, 1'000'000'000}) {
    int failed = 0;
    for (std::int64_t skipped = 0; skipped < 24; ++skipped) {
      CAPTURE(refused);
      CAPTURE(skipped);
      Cluster cluster = Cluster::colocated(3, 1 + static_cast<std::uint32_t>(skipped) % 2);
      Allocations::refuse(skipped * skipped * skipped / 4, refused);
      for (const OperationPtr& operation : calls.submit_to(cluster)) {
        const Status failure = outcome(operation);
        if (!failure) continue;
        REQUIRE_MESSAGE(says_why(failure), failure->message);
        ++failed;
      }
      Allocations::stop_refusing();
      for (std::size_t rank = 0; rank < 3; ++rank) cluster.destroy(rank);
    }
    CHECK(failed > 0);
  }
}

// The rank that ran out may have no memory to tell the others, and loses them for all its groups.
TEST_CASE("a group that runs out of memory leaves no other group waiting") {
  Random random(19);
  constexpr wire::Descriptor kDescriptor{DType::float32, ReduceOp::sum, 200'000};
  Collective collective = random_collective(kDescriptor, 3, 256, {0.5}, random);
  const auto submit_to = [&](Group& group) {
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      operations.push_back(group[rank]->submit(arguments_of(collective, rank)));
    }
    return operations;
  };
  const Allocations::Spared spared;
  for (const std::int64_t refused : {3, 10}) {
    for (const std::int64_t skipped : {0, 8, 13, 45}) {
      CAPTURE(refused);
      CAPTURE(skipped);
      MeshCluster mesh(3);
      Group failing = mesh.join_all(0, {0, 1, 2});
      Group other = mesh.join_all(1, {0, 1, 2});
      check_works(failing, kDescriptor, random);
      check_works(other, kDescriptor, random);
      Allocations::refuse(skipped, refused);
      for (const OperationPtr& operation : submit_to(failing)) (void)outcome(operation);
      Allocations::stop_refusing();
      for (const OperationPtr& operation : submit_to(other)) (void)outcome(operation);
    }
  }
}

TEST_CASE("a caller that runs out of memory gets an exception or an error, and nothing hangs") {
  Calls calls;
  int thrown = 0;
  for (std::int64_t skipped = 0; skipped < 60; ++skipped) {
    CAPTURE(skipped);
    Cluster cluster = Cluster::colocated(3, 2);
    const std::uint64_t before = cluster[0].stats().operations;
    OperationPtr operation;
    const auto arguments =
        skipped % 2 == 0 ? arguments_of(calls.dense, 0) : arguments_of(calls.sparse.front(), 0);
    Allocations::refuse(skipped / 2, 1);
    try {
      operation = cluster[0].submit(arguments);
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    Allocations::stop_refusing();
    const std::uint64_t issued = cluster[0].stats().operations - before;
    CHECK(issued == (operation ? 1 : 0));
    cluster.destroy(1);
    cluster.destroy(2);
    if (operation) CHECK(outcome(operation));
  }
  CHECK(thrown > 0);
}

// Nothing but the aggregator's thread asks for memory meanwhile.
TEST_CASE("a datagram that finds no memory ends its job, and no other") {
  const Allocations::Spared spared;
  const wire::Topology topology = topology_of(2, 1, 1);
  for (const std::int64_t refused : {1, 50}) {
    CAPTURE(refused);
    SlotAggregators aggregators(1);
    std::vector<std::vector<Sockets>> meshes;
    for (const std::uint64_t job : {1, 2}) {
      const auto keys = std::make_shared<wire::WayKeys>(keys_of(job, 0, 1472));
      meshes.push_back(dedicated_mesh(topology, job, aggregators.all(), {{5, keys}}));
    }
    wait_until([&] { return aggregators[0].stats().workers == 4; });
    Buffer odd(wire::kDatagramHeaderBytes);
    wire::encode({.columns = 0, .job = 1}, {}, odd);
    Allocations::refuse(0, refused);
    send_to(bound_socket(AF_INET), aggregators.address(0), odd);
    wait_until([&] { return !aggregators[0].serves({1, 2, 0, 0}); });
    wait_until([&] { return Allocations::asked() >= 1; });
    Allocations::stop_refusing();
    CHECK(aggregators[0].serves({2, 2, 0, 0}));
    CHECK(aggregators[0].serves({2, 2, 1, 0}));
  }
}

// A job of two workers that has no ranks: nothing but the aggregator's thread asks for memory.
class Greeters {
 public:
  Greeters(SlotAggregators& aggregators, std::uint64_t job)
      : to_(aggregators.address(0)),
        job_(job),
        mesh_(dedicated_mesh(topology_of(2, 1, 1), job, aggregators.all(),
                             {{5, std::make_shared<wire::WayKeys>(keys_)}})) {}

  void greet(const Socket& from) {
    Buffer hello(64);
    wire::encode_greeting({.kind = wire::DatagramKind::hello,
                           .columns = 0,
                           .job = job_,
                           .epoch = 5,
                           .round = ++number_},
                          {.workers = 2, .world_size = 2, .datagram_bytes = 1472}, hello);
    keys_.up.seal(hello);
    send_to(from, to_, hello);
  }

 private:
  const net::Address to_;
  const std::uint64_t job_;
  const wire::WayKeys keys_ = keys_of(job_, 0, 1472);
  std::vector<Sockets> mesh_;
  std::uint64_t number_ = 0;
};

// Each greeting comes from elsewhere, so that the answer to it asks for memory.
TEST_CASE("an answer that finds no memory ends its job, and the others go on") {
  const Allocations::Spared spared;
  for (std::int64_t skipped = 0; skipped < 8; ++skipped) {
    CAPTURE(skipped);
    SlotAggregators aggregators(1);
    Greeters hit(aggregators, 1), other(aggregators, 2);
    wait_until([&] { return aggregators[0].stats().workers == 4; });
    Allocations::refuse(skipped, 1);
    std::vector<Socket> from;
    wait_until([&] {
      hit.greet(from.emplace_back(bound_socket(AF_INET)));
      return Allocations::asked() > skipped;
    });
    Allocations::stop_refusing();
    const Socket here = bound_socket(AF_INET);
    std::array<std::byte, 64> answer;
    wait_until([&] {
      other.greet(here);
      return ::recv(here.fd(), answer.data(), answer.size(), 0) == 64;
    });
    aggregators[0].close();
  }
}

TEST_CASE("an aggregator that runs out of memory ends its jobs, and goes on") {
  Random random(3);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 200'000}, 2, 256, {0.5}, random);
  const Allocations::Spared spared;
  std::deque<comm::Aggregator> aggregators(2);
  const wire::Topology topology = topology_of(2, 1, 2);
  for (std::uint64_t job = 1; job <= 30; ++job) {
    CAPTURE(job);
    Cluster cluster(topology, true, dedicated_mesh(topology, job, aggregators));
    cluster.start_but(kNoRank);
    Allocations::refuse(static_cast<std::int64_t>(job * job), 3);
    const OperationPtr a = submit(cluster, collective, 0);
    const OperationPtr b = submit(cluster, collective, 1);
    for (const OperationPtr& operation : {a, b}) {
      const Status failure = outcome(operation);
      if (failure) REQUIRE_MESSAGE(says_why(failure), failure->message);
    }
    Allocations::stop_refusing();
  }
  Cluster cluster(topology, true, dedicated_mesh(topology, 99, aggregators));
  cluster.start_but(kNoRank);
  check_works(cluster, collective.descriptor, random);
  cluster.close();
}

// The descriptor through which a thread waits, as the kernel calls it.
int newest_epoll() {
  int newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const bool is_epoll =
        std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[eventpoll]";
    if (is_epoll) newest = std::max(newest, std::stoi(entry.path().filename()));
  }
  return newest;
}

TEST_CASE("a system call that fails under a lane ends its communicator, on every rank") {
  Random random(4);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 200'000}, 2, 256, {0.5}, random);
  Cluster cluster = Cluster::colocated(2, 1);
  check_works(cluster, collective.descriptor, random);
  const Socket no_epoll(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(::dup2(no_epoll.fd(), newest_epoll()) >= 0);  // that of rank 1
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    operations.push_back(submit(cluster, collective, rank));
    operations.push_back(submit(cluster, collective, rank));
  }
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    if (!failure) continue;  // It was quick enough.
    check_failed(failure, ErrorCode::aborted, 1);
    CHECK(failure->message.find("epoll_wait") != std::string::npos);
  }
  check_failed(outcome(submit(cluster, collective, 0)), ErrorCode::aborted, 1);
}

}  // namespace comm_exceptions_test
