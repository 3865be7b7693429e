// A rank that reads slowly: what waits for it is bounded, and a rank that leaves stays until it has
// read everything, as long as it reads at all.
#include <doctest/doctest.h>

#include "allocations.hpp"
#include "narrow_link.hpp"
#include "sparse_cluster.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::size_t kMiB = 1u << 20;

// Two ranks, joined by a narrow link from rank 0 to rank 1.
struct NarrowPair {
  NarrowPair() {
    const wire::Topology topology = topology_of(2, 1, 2);
    std::vector<std::vector<int>> first{{-1, link.take_a().release()}};
    std::vector<std::vector<int>> second{{link.take_b().release(), -1}};
    sender = std::make_unique<comm::Communicator>(topology, 0, false, first);
    reader = std::make_unique<comm::Communicator>(topology, 1, false, second);
  }

  NarrowLink link;
  std::unique_ptr<comm::Communicator> sender, reader;
};

// A full vector, sparse in form only.
SparseCollective broadcast_of(std::uint64_t count) {
  const wire::Call call{.descriptor = {.count = count, .is_sparse = true},
                        .collective = wire::Collective::broadcast};
  Random random(1);
  std::vector<SparseVector> vectors;
  for (const std::uint64_t named : {count, std::uint64_t{0}}) {
    vectors.emplace_back(call.descriptor, random_positions(count, named, random),
                         Buffer(named * 4, std::byte{1}));
  }
  return {call, std::move(vectors)};
}

TEST_CASE("the root of a broadcast keeps little in memory, and ends when little is left to send") {
  const SparseCollective broadcast = broadcast_of(20'000'000);
  NarrowPair pair;
  pair.link.let_through(kMiB);
  const std::size_t before = Allocations::held();
  Allocations::forget_peak();
  const OperationPtr sent = pair.sender->submit(arguments_of(broadcast, 0));
  const OperationPtr read = pair.reader->submit(arguments_of(broadcast, 1));
  wait_until([&] { return pair.link.carried() == kMiB; });
  CHECK_FALSE(sent->wait(std::chrono::milliseconds{500}));
  CHECK(Allocations::peak() - before < 40 * kMiB);
  pair.link.let_through(1000 * kMiB);
  CHECK_FALSE(outcome(sent));
  CHECK(pair.link.carried() > 50 * kMiB);
  CHECK_FALSE(outcome(read));
}

TEST_CASE("a rank that leaves lingers as long as bytes move") {
  const SparseCollective broadcast = broadcast_of(3'000'000);  // 12 MB
  NarrowPair pair;
  pair.link.let_through(6 * kMiB);
  const OperationPtr sent = pair.sender->submit(arguments_of(broadcast, 0));
  const OperationPtr read = pair.reader->submit(arguments_of(broadcast, 1));
  REQUIRE_FALSE(outcome(sent));
  std::jthread reading([&] {
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      pair.link.let_through(kMiB / 4);
    }
  });
  pair.sender->close(std::chrono::milliseconds{500});
  CHECK_FALSE(outcome(read));
}

TEST_CASE("a rank that leaves waits no longer for a peer that reads nothing") {
  const SparseCollective broadcast = broadcast_of(3'000'000);
  NarrowPair pair;
  pair.link.let_through(6 * kMiB);
  const OperationPtr sent = pair.sender->submit(arguments_of(broadcast, 0));
  const OperationPtr read = pair.reader->submit(arguments_of(broadcast, 1));
  REQUIRE_FALSE(outcome(sent));
  pair.sender->close(std::chrono::milliseconds{200});
  pair.link.let_through(100 * kMiB);
  check_failed(outcome(read), ErrorCode::peer_lost, 0);
}

}  // namespace
