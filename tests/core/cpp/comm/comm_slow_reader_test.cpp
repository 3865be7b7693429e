// A rank that reads slowly: what waits for it is bounded, and a rank that leaves stays until it has
// read everything, as long as it reads at all.
#include <doctest/doctest.h>

#include "allocations.hpp"
#include "mesh_cluster.hpp"
#include "narrow_link.hpp"
#include "sparse_cluster.hpp"

namespace comm_slow_reader_test {

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
SparseCollective broadcast_of(std::uint64_t count, std::size_t ranks = 2) {
  const wire::Call call{.descriptor = {.count = count, .is_sparse = true},
                        .collective = wire::Collective::broadcast};
  Random random(1);
  std::vector<SparseVector> vectors;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t named = rank == 0 ? count : 0;
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

// --- Beside a rank that reads nothing ---

constexpr std::size_t kQueued = 4 * kMiB;  // a lane's share

// Meshes of so many ranks, where nothing comes from rank 0 to rank 2 but what the link lets
// through.
struct NarrowMesh {
  explicit NarrowMesh(std::uint32_t ranks) {
    std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
    for (std::uint32_t a = 0; a < ranks; ++a) {
      for (std::uint32_t b = a + 1; b < ranks; ++b) {
        SocketPair pair = connected_pair();
        const bool is_narrow = a == 0 && b == 2;
        sockets[a][b] = (is_narrow ? link.take_a() : std::move(pair.a)).release();
        sockets[b][a] = (is_narrow ? link.take_b() : std::move(pair.b)).release();
      }
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      meshes.push_back(std::make_unique<comm::Mesh>(
          comm::MeshPlace{
              .peers = ranks, .rank = static_cast<Rank>(rank), .share = {.queued = kQueued}},
          net::Sockets({sockets[rank]})));
    }
  }

  Group join(std::uint32_t number, const std::vector<std::uint32_t>& members,
             const proto::Hosts& hosts = proto::Hosts{}) {
    Group group;
    const auto size = static_cast<std::uint32_t>(members.size());
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      group.push_back(std::make_unique<comm::Communicator>(
          topology_of(size, 1, size), static_cast<Rank>(rank), *meshes[members[rank]],
          comm::Group{number, members}, hosts));
    }
    return group;
  }

  // Waits until nothing more goes towards the narrow link's end.
  std::size_t await_stop(const comm::Communicator& sender) const {
    std::size_t sent = 0;
    for (std::size_t now = 1; now != sent || sent == 0;) {
      sent = now;
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      now = sender.stats().bytes_sent;
    }
    return sent;
  }

  NarrowLink link;
  std::vector<std::unique_ptr<comm::Mesh>> meshes;
};

void check_others_work(const Group& others, Random& random) {
  for (int i = 0; i < 5; ++i) {
    check_works(others, {DType::float32, ReduceOp::sum, 400'000}, random);
    const SparseCollective broadcast = broadcast_of(500'000);
    const OperationPtr root = others[0]->submit(arguments_of(broadcast, 0));
    const OperationPtr reader = others[1]->submit(arguments_of(broadcast, 1));
    REQUIRE_FALSE(outcome(root));
    REQUIRE_FALSE(outcome(reader));
  }
}

TEST_CASE("a rank that reads nothing holds up its own group, and no other") {
  Random random(1);
  NarrowMesh mesh(3);
  const Group slow = mesh.join(1, {0, 1, 2});
  const Group others = mesh.join(2, {0, 1});
  check_others_work(others, random);
  const SparseCollective broadcast = broadcast_of(20'000'000, 3);
  const std::size_t before = Allocations::held();
  Allocations::forget_peak();
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    operations.push_back(slow[rank]->submit(arguments_of(broadcast, rank)));
  }
  mesh.link.let_through(kMiB);
  mesh.await_stop(*slow[0]);
  CHECK_FALSE(operations[0]->ended());
  check_others_work(others, random);
  CHECK_FALSE(operations[0]->ended());
  CHECK(Allocations::peak() - before < 120 * kMiB);
  mesh.link.let_through(1000 * kMiB);
  for (const OperationPtr& operation : operations) CHECK_FALSE(outcome(operation));
}

// The reader's host brings nothing, so that no window stops the owners and the deputies before it.
TEST_CASE("a group of several hosts that waits for a reader leaves one of a single host alone") {
  Random random(2);
  NarrowMesh mesh(4);
  const Group hosts = mesh.join(1, {0, 1, 2, 3}, proto::Hosts({0, 0, 1, 1}));
  const Group here = mesh.join(2, {0, 1});
  mesh.link.let_through(kMiB);
  check_works(hosts, {DType::int32, ReduceOp::sum, 10'000}, random);
  check_others_work(here, random);
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, 20'000'000};
  std::vector<std::vector<float>> tensors;
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    tensors.emplace_back(descriptor.count, rank < 2 ? 1.0f : 0.0f);
    auto* const data = reinterpret_cast<std::byte*>(tensors.back().data());
    operations.push_back(hosts[rank]->submit({data, data, {.descriptor = descriptor}}));
  }
  mesh.await_stop(*hosts[0]);
  CHECK_FALSE(operations[0]->ended());
  check_others_work(here, random);
  CHECK_FALSE(operations[0]->ended());
  mesh.link.let_through(1000 * kMiB);
  for (const OperationPtr& operation : operations) CHECK_FALSE(outcome(operation));
  for (const auto& tensor : tensors) {
    CHECK(std::ranges::all_of(tensor, [](float value) { return value == 2.0f; }));
  }
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

}  // namespace comm_slow_reader_test
