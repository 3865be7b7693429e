// Sparse collectives through the communicators of a cluster.
#pragma once

#include "cluster.hpp"
#include "sparse_collectives.hpp"

namespace sparsewire::test {

inline constexpr wire::Algorithm kAlgorithms[] = {wire::Algorithm::automatic,
                                                  wire::Algorithm::stream,
                                                  wire::Algorithm::ssar_recursive_double,
                                                  wire::Algorithm::ssar_split_allgather,
                                                  wire::Algorithm::dsar_split_allgather,
                                                  wire::Algorithm::ring,
                                                  wire::Algorithm::allgather};

inline constexpr std::uint64_t kLargeCount = 600'000;

// Large enough for every owner and lane to have a part in it.
inline SparseCollective large_sparse(wire::Call call, std::size_t world_size, Random& random) {
  call.descriptor.count = kLargeCount;
  call.descriptor.is_sparse = true;
  return sparse_collective(call, world_size, 40'000, random, [&](std::size_t count) {
    return random_small_numbers(count, DType::float32, random);
  });
}

inline comm::Operation::Arguments arguments_of(const SparseCollective& collective,
                                               std::size_t rank) {
  return {.call = collective.call(), .tensor = collective.vector(rank).tensor()};
}

inline OperationPtr submit(Cluster& cluster, const SparseCollective& collective, std::size_t rank) {
  return cluster[rank].submit(arguments_of(collective, rank));
}

inline std::vector<OperationPtr> submit_all(Cluster& cluster, const SparseCollective& collective) {
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    operations.push_back(submit(cluster, collective, rank));
  }
  return operations;
}

inline void check_done(const OperationPtr& operation, const SparseCollective& collective,
                       std::size_t rank) {
  CAPTURE(wire::describe(collective.call()));
  CAPTURE(rank);
  const Status failure = outcome(operation);
  REQUIRE_MESSAGE(!failure, (failure ? failure->message : ""));
  REQUIRE(same(collective.results_of(operation->outputs(), rank), collective.expected(rank)));
}

inline void check_all_done(const std::vector<OperationPtr>& operations,
                           const SparseCollective& collective) {
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    check_done(operations[rank], collective, rank);
  }
}

inline void check_sparse_works(Cluster& cluster, Random& random) {
  for (const wire::Algorithm algorithm : {wire::Algorithm::stream, wire::Algorithm::allgather}) {
    const auto collective = large_sparse({.algorithm = algorithm}, cluster.size(), random);
    check_all_done(submit_all(cluster, collective), collective);
  }
}

}  // namespace sparsewire::test
