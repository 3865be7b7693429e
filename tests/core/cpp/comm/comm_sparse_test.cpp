// Sparse collectives through real communicators, as long as nothing goes wrong: results, forms,
// order, and dense ones in flight beside them.
#include <doctest/doctest.h>

#include "sparse_cluster.hpp"

namespace comm_sparse_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;

SparseCollective random_sparse(std::size_t world_size, Random& random) {
  const DType dtype = pick(kDTypes, random);
  const std::uint32_t row = pick({1u, 1u, 16u}, random);
  const std::uint64_t length =
      pick<std::uint64_t>({0, 1, 700, 9000, below(300'000, random)}, random) / row;
  Call call = random_sparse_call(sparse_descriptor(dtype, length, row, random), world_size, random);
  if (call.collective == wire::Collective::all_reduce) call.algorithm = pick(kAlgorithms, random);
  const std::uint64_t named = pick<std::uint64_t>({5, length / 50, length / 3, length}, random);
  return sparse_collective(call, world_size, named, random, [&](std::size_t count) {
    return random_small_numbers(count, dtype, random);
  });
}

// --- Results ---

TEST_CASE("many operations at once, sparse and dense, in worlds of every size") {
  for (const std::uint32_t world_size : {1u, 2u, 3u, 5u}) {
    for (const std::uint32_t lanes : {1u, 2u}) {
      CAPTURE(world_size);
      CAPTURE(lanes);
      Random random(10 * world_size + lanes);
      std::deque<SparseCollective> sparse;
      std::deque<Collective> dense;
      Cluster cluster = Cluster::colocated(world_size, lanes);
      std::vector<std::vector<OperationPtr>> sparse_operations;
      std::vector<std::vector<OperationPtr>> dense_operations;
      for (int i = 0; i < 16; ++i) {
        if (one_in(3, random)) {
          const wire::Descriptor descriptor{pick(kDTypes, random), pick(kOps, random),
                                            below(100'000, random)};
          dense.push_back(random_collective(descriptor, world_size, 256, {0.3}, random));
          dense_operations.emplace_back();
          for (std::size_t rank = 0; rank < world_size; ++rank) {
            dense_operations.back().push_back(submit(cluster, dense.back(), rank));
          }
        } else {
          sparse.push_back(random_sparse(world_size, random));
          sparse_operations.push_back(submit_all(cluster, sparse.back()));
        }
      }
      for (std::size_t i = 0; i < sparse.size(); ++i)
        check_all_done(sparse_operations[i], sparse[i]);
      for (std::size_t i = 0; i < dense.size(); ++i) {
        for (std::size_t rank = 0; rank < world_size; ++rank) {
          check_done(dense_operations[i][rank], dense[i], rank);
        }
      }
      CHECK(cluster[0].stats().operations == 16);
      CHECK(cluster[0].stats().operations_failed == 0);
      cluster.close();
    }
  }
}

TEST_CASE("every algorithm writes into a dense array, too") {
  Random random(1);
  Cluster cluster = Cluster::colocated(3, 2);
  for (const Algorithm algorithm : kAlgorithms) {
    CAPTURE(wire::name_of(algorithm));
    const auto collective = large_sparse({.algorithm = algorithm}, 3, random);
    std::vector<Buffer> outs(3, Buffer(kLargeCount * 4, std::byte{0xcd}));
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      comm::Operation::Arguments arguments = arguments_of(collective, rank);
      arguments.out = outs[rank].data();
      operations.push_back(cluster[rank].submit(arguments));
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
      REQUIRE_FALSE(outcome(operations[rank]));
      operations[rank]->outputs().finish();
      CHECK((outs[rank] == collective.expected(rank).front()));
    }
  }
  cluster.close();
}

TEST_CASE("lanes share the parts of large vectors") {
  for (const std::uint32_t lanes : {1u, 2u, 3u}) {
    CAPTURE(lanes);
    Random random(lanes);
    Cluster cluster = Cluster::colocated(3, lanes);
    std::deque<SparseCollective> collectives;
    std::vector<std::vector<OperationPtr>> operations;
    for (const wire::Collective what : kCollectives) {
      collectives.push_back(large_sparse({.collective = what, .root = 2}, 3, random));
      operations.push_back(submit_all(cluster, collectives.back()));
    }
    for (std::size_t i = 0; i < operations.size(); ++i)
      check_all_done(operations[i], collectives[i]);
    cluster.close();
  }
}

TEST_CASE("results come in the form that was asked for") {
  Random random(2);
  Cluster cluster = Cluster::colocated(2, 2);
  for (const wire::ResultForm form :
       {wire::ResultForm::cheapest, wire::ResultForm::sparse, wire::ResultForm::dense}) {
    const auto collective =
        large_sparse({.descriptor = {.form = form}, .algorithm = Algorithm::stream}, 2, random);
    check_all_done(submit_all(cluster, collective), collective);
  }
  cluster.close();
}

// Chunks of which nearly all is named are the largest that there are.
TEST_CASE("vectors with hardly a gap") {
  Random random(3);
  const wire::Descriptor descriptor{.dtype = DType::float64, .count = 1'100'000, .is_sparse = true};
  for (const Algorithm algorithm : {Algorithm::stream, Algorithm::allgather}) {
    for (const wire::ResultForm form : {wire::ResultForm::cheapest, wire::ResultForm::sparse}) {
      CAPTURE(wire::name_of(algorithm));
      Call call{.descriptor = descriptor, .algorithm = algorithm};
      call.descriptor.form = form;
      std::vector<SparseVector> vectors;
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<std::uint64_t> positions;
        for (std::uint64_t at = 0; at < descriptor.count; ++at) {
          if (at % 1000 != 0) positions.push_back(at);
        }
        Buffer values = random_small_numbers(positions.size(), descriptor.dtype, random);
        vectors.emplace_back(call.descriptor, std::move(positions), std::move(values));
      }
      const SparseCollective collective(call, std::move(vectors));
      Cluster cluster = Cluster::colocated(2, 1);
      check_all_done(submit_all(cluster, collective), collective);
      cluster.close();
    }
  }
}

TEST_CASE("the link model decides what an automatic all_reduce runs as") {
  Random random(4);
  Cluster cluster = Cluster::colocated(3, 2);
  for (const proto::LinkFigures& link : {proto::LinkFigures{}, proto::LinkFigures{1, 1e-12, 1e-12},
                                         proto::LinkFigures{1e-12, 1, 1e-12}}) {
    for (std::size_t rank = 0; rank < 3; ++rank) cluster[rank].set_link(link);
    const auto collective = large_sparse({}, 3, random);
    check_all_done(submit_all(cluster, collective), collective);
  }
  cluster.close();
}

TEST_CASE("operations end in the order in which they were issued") {
  Random random(5);
  Cluster cluster = Cluster::colocated(2, 2);
  std::deque<SparseCollective> collectives;
  for (int i = 0; i < 30; ++i) {
    collectives.push_back(random_sparse(2, random));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      cluster[rank].watch(submit(cluster, collectives.back(), rank));
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
      const OperationPtr operation = cluster[rank].next_completed();
      REQUIRE(operation);
      CHECK(operation->seq() == seq);
      check_done(operation, collectives[seq], rank);
    }
  }
  cluster.close();
}

TEST_CASE("a world of one") {
  Random random(10);
  Cluster cluster = Cluster::colocated(1, 2);
  for (const wire::Collective what : kCollectives) {
    CAPTURE(wire::name_of(what));
    const auto collective = large_sparse({.collective = what}, 1, random);
    check_all_done(submit_all(cluster, collective), collective);
  }
  CHECK(cluster[0].stats().bytes_sent == 0);
  cluster.close();
}

}  // namespace comm_sparse_test
