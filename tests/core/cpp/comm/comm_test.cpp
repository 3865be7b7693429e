// Communicators over real sockets, as long as nothing goes wrong: results, order, threads, leaving.
#include <doctest/doctest.h>

#include "cluster.hpp"

namespace comm_test {

using namespace sparsewire;
using namespace sparsewire::test;

wire::Descriptor random_descriptor(Random& random) {
  return {pick(kDTypes, random), pick(kOps, random),
          pick<std::uint64_t>({0, 1, 1000, 8193, below(200'000, random)}, random)};
}

TEST_CASE("many operations at once, in worlds of every size") {
  for (const std::uint32_t world_size : {1u, 2u, 3u, 5u}) {
    for (const std::uint32_t lanes : {1u, 2u, 3u}) {
      CAPTURE(world_size);
      CAPTURE(lanes);
      Random random(10 * world_size + lanes);
      std::deque<Collective> collectives;
      for (int i = 0; i < 12; ++i) {
        collectives.push_back(random_collective(random_descriptor(random), world_size, 256,
                                                pick(kDensities, random), random));
      }
      Cluster cluster = Cluster::colocated(world_size, lanes);
      std::vector<std::vector<OperationPtr>> operations(world_size);
      for (Collective& collective : collectives) {
        for (std::size_t rank = 0; rank < world_size; ++rank) {
          operations[rank].push_back(submit(cluster, collective, rank));
        }
      }
      for (std::size_t rank = 0; rank < world_size; ++rank) {
        for (std::size_t i = 0; i < collectives.size(); ++i) {
          check_done(operations[rank][i], collectives[i], rank);
          CHECK(operations[rank][i]->seq() == i);
        }
        CHECK(cluster[rank].stats().operations == collectives.size());
        CHECK(cluster[rank].stats().operations_failed == 0);
      }
      cluster.close();
    }
  }
}

TEST_CASE("operations end in the order in which they were issued") {
  Random random(1);
  std::deque<Collective> collectives;
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t count = i % 3 == 0 ? 300'000 : 10;
    collectives.push_back(
        random_collective({DType::float32, ReduceOp::sum, count}, 2, 256, {0.5}, random));
  }
  Cluster cluster = Cluster::colocated(2, 2);
  for (Collective& collective : collectives) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      cluster[rank].watch(submit(cluster, collective, rank));
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
      const OperationPtr operation = cluster[rank].next_completed();
      REQUIRE(operation);
      CHECK(operation->seq() == seq);
      CHECK(operation->ended());
    }
  }
  cluster.close();
}

TEST_CASE("an operation that has ended can still be watched") {
  Random random(2);
  Cluster cluster = Cluster::colocated(1, 1);
  Collective collective =
      random_collective({DType::int32, ReduceOp::sum, 100}, 1, 256, {1}, random);
  const OperationPtr operation = submit(cluster, collective, 0);
  check_done(operation, collective, 0);
  cluster[0].watch(operation);
  CHECK(cluster[0].next_completed() == operation);
  std::jthread waiter([&] { CHECK_FALSE(cluster[0].next_completed()); });
  cluster.close();
  waiter.join();
}

// All operations are alike, because threads of different ranks may issue them in any order.
TEST_CASE("several threads may submit at once") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 25;
  constexpr std::uint64_t count = 20'000;
  const wire::Descriptor descriptor{DType::int32, ReduceOp::sum, count};
  Cluster cluster = Cluster::colocated(3, 2);
  std::vector<std::vector<std::int32_t>> tensors(3 * threads * each);
  std::vector<OperationPtr> operations(tensors.size());
  cluster.at_once([&](std::size_t rank) {
    std::vector<std::thread> callers;
    for (std::size_t t = 0; t < threads; ++t) {
      callers.emplace_back([&, t] {
        for (std::size_t i = 0; i < each; ++i) {
          const std::size_t at = (rank * threads + t) * each + i;
          tensors[at].assign(count, static_cast<std::int32_t>(rank + 1));
          auto* const memory = reinterpret_cast<std::byte*>(tensors[at].data());
          operations[at] = cluster[rank].submit({memory, memory, {.descriptor = descriptor}});
          if (i % 5 == 0) operations[at]->wait(kPatience);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  });
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    CHECK_FALSE(outcome(operations[at]));
    CHECK((tensors[at] == std::vector<std::int32_t>(count, 6)));
  }
  cluster.close();
}

TEST_CASE("what is zero is not sent") {
  Random random(3);
  Cluster cluster = Cluster::colocated(2, 1);
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, 1'000'000};
  Collective zeros = random_collective(descriptor, 2, 256, {0}, random);
  const OperationPtr a = submit(cluster, zeros, 0);
  const OperationPtr b = submit(cluster, zeros, 1);
  check_done(a, zeros, 0);
  check_done(b, zeros, 1);
  cluster.close();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const comm::Stats stats = cluster[rank].stats();
    CHECK(stats.bytes_sent < 1000);
    CHECK(stats.segments_sent == 0);
    CHECK(stats.chunks_empty == proto::make_grid(descriptor, cluster.topology()).chunks());
  }
}

TEST_CASE("a rank that is done may leave while others still fetch results") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::deque<Collective> collectives;
    for (int i = 0; i < 6; ++i) {
      collectives.push_back(random_collective({DType::float32, ReduceOp::sum, 150'000}, 3, 256,
                                              pick(kDensities, random), random));
    }
    Cluster cluster = Cluster::colocated(3, 1 + seed % 2);
    std::vector<std::vector<OperationPtr>> operations(3);
    cluster.at_once([&](std::size_t rank) {
      for (Collective& collective : collectives) {
        operations[rank].push_back(submit(cluster, collective, rank));
      }
      for (const OperationPtr& operation : operations[rank]) operation->wait(kPatience);
      cluster[rank].close(kPatience);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t i = 0; i < collectives.size(); ++i) {
        check_done(operations[rank][i], collectives[i], rank);
      }
    }
  }
}

TEST_CASE("after the end nothing can be submitted") {
  Random random(4);
  Cluster cluster = Cluster::colocated(2, 1);
  cluster.close();
  cluster[0].close(kPatience);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 10}, 2, 256, {1}, random);
  check_failed(outcome(submit(cluster, collective, 0)), ErrorCode::closed, kNoRank);
  CHECK_FALSE(cluster[0].next_completed());
}

}  // namespace comm_test
