// What stats() says right behind a call: all of it, and nothing that is still to come.
#include <doctest/doctest.h>

#include "sparse_cluster.hpp"

namespace comm_counters_test {

using namespace sparsewire;
using namespace sparsewire::test;

comm::Stats sum_of(Cluster& cluster) {
  comm::Stats sum;
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    const comm::Stats stats = cluster[rank].stats();
    sum.bytes_sent += stats.bytes_sent;
    sum.bytes_received += stats.bytes_received;
    sum.segments_sent += stats.segments_sent;
    sum.results_received += stats.results_received;
    sum.chunks_empty += stats.chunks_empty;
  }
  return sum;
}

// Waits for all ranks, and for nothing else, before it reads the counters.
template <typename Calls>
void check_exact(Cluster& cluster, int repeats, Calls&& calls) {
  for (int i = 0; i < repeats; ++i) {
    CAPTURE(i);
    const comm::Stats before = sum_of(cluster);
    for (const OperationPtr& operation : calls()) REQUIRE_FALSE(outcome(operation));
    const comm::Stats after = sum_of(cluster);
    REQUIRE(after.bytes_sent > before.bytes_sent);
    REQUIRE(after.bytes_sent == after.bytes_received);
  }
}

TEST_CASE("right behind a dense all_reduce, what was sent is what was received") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    for (const std::uint64_t count : {10u, 60'000u}) {
      CAPTURE(lanes);
      CAPTURE(count);
      Random random(count);
      Cluster cluster = Cluster::colocated(3, lanes);
      Collective collective =
          random_collective({DType::float32, ReduceOp::max, count}, 3, 256, {0.5}, random);
      check_exact(cluster, 300, [&] {
        std::vector<OperationPtr> operations;
        for (std::size_t rank = 0; rank < 3; ++rank) {
          operations.push_back(submit(cluster, collective, rank));
        }
        return operations;
      });
      cluster.close();
    }
  }
}

TEST_CASE("right behind a sparse collective, what was sent is what was received") {
  for (const wire::Algorithm algorithm : {wire::Algorithm::allgather, wire::Algorithm::stream}) {
    CAPTURE(wire::name_of(algorithm));
    Random random(2);
    Cluster cluster = Cluster::colocated(3, 1);
    const auto collective = large_sparse({.algorithm = algorithm}, 3, random);
    check_exact(cluster, 50, [&] { return submit_all(cluster, collective); });
    cluster.close();
  }
}

TEST_CASE("a call counts the same every time") {
  Random random(3);
  Cluster cluster = Cluster::colocated(2, 1);
  Collective zeros =
      random_collective({DType::float32, ReduceOp::sum, 100'000}, 2, 256, {0}, random);
  std::vector<std::uint64_t> empty;
  for (int i = 0; i < 100; ++i) {
    const OperationPtr a = submit(cluster, zeros, 0);
    const OperationPtr b = submit(cluster, zeros, 1);
    REQUIRE_FALSE(outcome(a));
    empty.push_back(cluster[0].stats().chunks_empty);
    REQUIRE_FALSE(outcome(b));
  }
  for (std::size_t i = 0; i < empty.size(); ++i) CHECK(empty[i] == (i + 1) * empty.front());
  cluster.close();
}

}  // namespace comm_counters_test
