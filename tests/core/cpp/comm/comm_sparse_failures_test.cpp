// Sparse collectives through real communicators when something goes wrong: refused input and ranks
// that disagree end one operation, and a rank that is late or goes ends all.
#include <doctest/doctest.h>

#include "sparse_cluster.hpp"

namespace comm_sparse_failures_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;

// --- What one operation alone ends ---

TEST_CASE("refused input fails on every rank, and the communicator goes on") {
  Random random(6);
  for (const std::uint32_t lanes : {1u, 2u}) {
    Cluster cluster = Cluster::colocated(3, lanes);
    for (const Algorithm algorithm : kAlgorithms) {
      CAPTURE(wire::name_of(algorithm));
      const auto collective = large_sparse({.algorithm = algorithm}, 3, random);
      std::vector<OperationPtr> operations;
      for (std::size_t rank = 0; rank < 3; ++rank) {
        comm::Operation::Arguments arguments = arguments_of(collective, rank);
        const std::vector<std::int64_t> twice{7, 7};
        const Buffer values(8);
        if (rank == 1) {
          arguments.tensor.indices = twice.data();
          arguments.tensor.is_wide = true;
          arguments.tensor.named = 2;
          arguments.tensor.values = values.data();
        }
        operations.push_back(cluster[rank].submit(arguments));
      }
      for (const OperationPtr& operation : operations) {
        const Status failure = outcome(operation);
        check_failed(failure, ErrorCode::input, 1);
        CHECK(failure->message.find("rank 1: indices must ascend") != std::string::npos);
      }
      check_sparse_works(cluster, random);
    }
    cluster.close();
  }
}

// Its one chunk is on either lane; the first is done at once with what it has no part in.
TEST_CASE("a short vector that a rank refuses late fails on every rank, whatever lane it is on") {
  Random random(11);
  const std::vector<std::int64_t> twice{7, 7};
  const Buffer values(8);
  const Call call{.descriptor = {.count = 100, .is_sparse = true}};
  const auto collective = sparse_collective(call, 3, 20, random, [&](std::size_t count) {
    return random_small_numbers(count, DType::float32, random);
  });
  Cluster cluster = Cluster::colocated(3, 2);
  for (int repeat = 0; repeat < 4; ++repeat) {
    const OperationPtr a = submit(cluster, collective, 0);
    const OperationPtr b = submit(cluster, collective, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    comm::Operation::Arguments bad = arguments_of(collective, 1);
    bad.tensor.indices = twice.data();
    bad.tensor.is_wide = true;
    bad.tensor.named = 2;
    bad.tensor.values = values.data();
    const OperationPtr refused = cluster[1].submit(bad);
    for (const OperationPtr& operation : {a, b, refused}) {
      check_failed(outcome(operation), ErrorCode::input, 1);
    }
  }
  cluster.close();
}

TEST_CASE("ranks that disagree all learn of it, and the communicator goes on") {
  Random random(7);
  for (const std::uint32_t lanes : {1u, 2u}) {
    Cluster cluster = Cluster::colocated(3, lanes);
    for (const Algorithm usual : kAlgorithms) {
      for (const Algorithm odd : {Algorithm::stream, Algorithm::ring}) {
        if (usual == odd) continue;
        CAPTURE(wire::name_of(usual));
        CAPTURE(wire::name_of(odd));
        Call odd_call{.algorithm = odd};
        odd_call.descriptor.form = wire::ResultForm::sparse;
        const auto a = large_sparse({.algorithm = usual}, 3, random);
        const auto b = large_sparse(odd_call, 3, random);
        std::vector<OperationPtr> operations;
        for (std::size_t rank = 0; rank < 3; ++rank) {
          operations.push_back(submit(cluster, rank == 2 ? b : a, rank));
        }
        for (const OperationPtr& operation : operations) {
          const Status failure = outcome(operation);
          REQUIRE(failure);
          CHECK(failure->code == ErrorCode::mismatch);
        }
        check_sparse_works(cluster, random);
      }
    }
    cluster.close();
  }
}

// --- What ends everything ---

TEST_CASE("a rank that is late is named on all ranks") {
  Random random(8);
  for (const Algorithm algorithm : {Algorithm::stream, Algorithm::allgather}) {
    const auto collective = large_sparse({.algorithm = algorithm}, 3, random);
    Cluster cluster = Cluster::colocated(3, 1);
    comm::Operation::Arguments limited = arguments_of(collective, 0);
    limited.deadline = comm::Clock::now() + std::chrono::milliseconds{200};
    const OperationPtr a = cluster[0].submit(limited);
    const OperationPtr b = submit(cluster, collective, 1);
    for (const OperationPtr& operation : {a, b}) {
      check_failed(outcome(operation), ErrorCode::timeout, 2);
    }
  }
}

// The later one is dense, or sparse and chosen to run as a stream; it waits because such operations
// keep their order, and no rank but the absent one holds it up.
TEST_CASE("a collective that waits for its turn passes its deadline on time") {
  Random random(10);
  const auto earlier = large_sparse({.algorithm = Algorithm::allgather}, 3, random);
  Collective dense =
      random_collective({DType::float32, ReduceOp::sum, 100'000}, 3, 256, {0.5}, random);
  for (const std::uint32_t lanes : {1u, 2u}) {
    Cluster cluster = Cluster::colocated(3, lanes);
    std::vector<OperationPtr> operations;
    for (const std::size_t rank : {0u, 1u}) {
      operations.push_back(submit(cluster, earlier, rank));
      comm::Operation::Arguments limited = arguments_of(dense, rank);
      if (rank == 0) limited.deadline = comm::Clock::now() + std::chrono::milliseconds{200};
      operations.push_back(cluster[rank].submit(limited));
    }
    for (const OperationPtr& operation : operations) {
      const Status failure = outcome(operation);
      check_failed(failure, ErrorCode::timeout, 2);
      CHECK(failure->message.find("rank(s) 2") != std::string::npos);
    }
  }
}

TEST_CASE("an abort or the end of a rank at any moment ends everything on every rank") {
  Random values(9);
  std::deque<SparseCollective> collectives;
  for (const Algorithm algorithm : kAlgorithms) {
    collectives.push_back(large_sparse({.algorithm = algorithm}, 3, values));
  }
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto victim = below(3, random);
    const bool aborts = one_in(2, random);
    Cluster cluster = Cluster::colocated(3, 1 + seed % 2);
    std::vector<OperationPtr> operations;
    for (const SparseCollective& collective : collectives) {
      for (std::size_t rank = 0; rank < 3; ++rank) {
        operations.push_back(submit(cluster, collective, rank));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds{below(3000, random)});
    if (aborts) {
      cluster[victim].abort("enough");
    } else {
      cluster.destroy(victim);
    }
    for (const OperationPtr& operation : operations) {
      const Status failure = outcome(operation);
      if (!failure) continue;
      const bool is_expected =
          failure->code == ErrorCode::aborted || (!aborts && failure->code == ErrorCode::peer_lost);
      REQUIRE_MESSAGE(is_expected, failure->message);
      CHECK(failure->rank == static_cast<Rank>(victim));
    }
  }
}

}  // namespace comm_sparse_failures_test
