// Ranks that share hosts: who speaks for whom, and results that are added up on each host first,
// over shared memory, and between hosts then.
#include "proto/stream/hosts.hpp"

#include <doctest/doctest.h>

#include <set>

#include "cluster.hpp"

namespace hosts_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Hosts;
using Layout = std::vector<std::uint32_t>;

// By rank: which host it is on.
const Layout kLayouts[] = {{0, 0, 1, 1},
                           {0, 1, 0, 1},
                           {0, 0, 0, 1},
                           {3, 3, 7, 7, 7, 1},
                           {0, 0, 1, 1, 2, 2},
                           {5, 5, 5, 5},
                           {0, 0, 0, 0, 1, 1, 1, 1},
                           {0, 1, 1, 1, 0}};

TEST_CASE("one host, and hosts of one rank each, are flat") {
  for (const Layout& layout : {Layout{}, Layout{4, 4, 4}, Layout{0, 1, 2}, Layout{9}}) {
    const Hosts hosts(layout);
    CHECK(hosts.is_flat());
    CHECK_FALSE(hosts.has_deputies(0));
    CHECK(hosts.speaker(2, 1) == 2);
    CHECK((hosts.speakers(1, 3) == std::vector<Rank>{0, 1, 2}));
  }
}

TEST_CASE("one rank of each host speaks to an owner, and the owner for its own host") {
  for (const Layout& layout : kLayouts) {
    const Hosts hosts(layout);
    if (hosts.is_flat()) continue;
    const auto world_size = static_cast<std::uint32_t>(layout.size());
    for (std::uint32_t owner = 0; owner < world_size; ++owner) {
      const std::vector<Rank> speakers = hosts.speakers(owner, world_size);
      CHECK(speakers.size() == std::set(layout.begin(), layout.end()).size());
      CHECK(std::ranges::find(speakers, static_cast<Rank>(owner)) != speakers.end());
      for (Rank rank = 0; rank < static_cast<Rank>(world_size); ++rank) {
        const Rank speaker = hosts.speaker(rank, owner);
        CHECK(std::ranges::find(speakers, speaker) != speakers.end());
        CHECK(layout[static_cast<std::size_t>(speaker)] == layout[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

TEST_CASE("where hosts are alike, each rank speaks to one rank of every other host") {
  const Hosts hosts({0, 0, 0, 1, 1, 1});
  for (std::uint32_t owner = 0; owner < 6; ++owner) {
    const auto place = static_cast<Rank>(owner % 3);
    CHECK((hosts.speakers(owner, 6) == std::vector<Rank>{place, place + 3}));
  }
}

// What all ranks must get: sums of each host in rank order, and of these in the order of hosts.
Buffer reference(const wire::Descriptor& descriptor, const Collective& collective,
                 const Hosts& hosts) {
  wire::Descriptor share = descriptor;
  if (share.op == ReduceOp::avg) share.op = ReduceOp::sum;
  std::vector<Buffer> shares;
  std::set<Rank> seen;
  for (std::size_t rank = 0; rank < collective.ranks.size(); ++rank) {
    std::vector<Buffer> inputs;
    if (hosts.is_flat()) {
      inputs.push_back(collective.ranks[rank].input());
    } else if (seen.insert(hosts.ranks_beside(static_cast<Rank>(rank)).front()).second) {
      for (const Rank beside : hosts.ranks_beside(static_cast<Rank>(rank))) {
        inputs.push_back(collective.ranks[static_cast<std::size_t>(beside)].input());
      }
    }
    if (!inputs.empty()) {
      shares.push_back(inputs.size() == 1 ? inputs[0] : reference_all_reduce(share, inputs));
    }
  }
  return reference_all_reduce(descriptor, shares, collective.ranks.size());
}

wire::Descriptor random_descriptor(Random& random) {
  return {pick(kDTypes, random), pick(kOps, random),
          pick<std::uint64_t>({0, 1, 1000, 8193, below(200'000, random)}, random)};
}

TEST_CASE("results are added up on each host first, whatever the layout") {
  for (const Layout& layout : kLayouts) {
    for (const std::uint32_t lanes : {1u, 2u}) {
      CAPTURE(layout.size());
      CAPTURE(lanes);
      Random random(100 * layout.size() + lanes + layout[1]);
      const Hosts hosts(layout);
      std::deque<Collective> collectives;
      for (int i = 0; i < 12; ++i) {
        collectives.push_back(random_collective(random_descriptor(random), layout.size(), 256,
                                                pick(kDensities, random), random));
        collectives.back().expected =
            reference(collectives.back().descriptor, collectives.back(), hosts);
      }
      Cluster cluster = Cluster::on_hosts(layout, lanes);
      std::vector<std::vector<OperationPtr>> operations(layout.size());
      for (Collective& collective : collectives) {
        for (std::size_t rank = 0; rank < layout.size(); ++rank) {
          operations[rank].push_back(submit(cluster, collective, rank));
        }
      }
      for (std::size_t rank = 0; rank < layout.size(); ++rank) {
        for (std::size_t i = 0; i < collectives.size(); ++i) {
          CAPTURE(wire::describe(collectives[i].descriptor));
          check_done(operations[rank][i], collectives[i], rank);
        }
      }
      cluster.close();
    }
  }
}

TEST_CASE("values cross the network once for a host") {
  const Layout layout{0, 0, 0, 1, 1, 1};
  constexpr std::uint64_t count = 600'000;
  Random random(7);
  Cluster cluster = Cluster::on_hosts(layout, 1);
  Collective collective =
      random_collective({DType::int32, ReduceOp::sum, count}, layout.size(), 256, {1}, random);
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < layout.size(); ++rank) {
    operations.push_back(submit(cluster, collective, rank));
  }
  for (std::size_t rank = 0; rank < layout.size(); ++rank) {
    check_done(operations[rank], collective, rank);
  }
  cluster.close();
}

TEST_CASE("low precision rounds what crosses the network, and gives all ranks the same bits") {
  for (const Codec codec : {Codec::bfloat16, Codec::int8}) {
    const Layout layout{0, 0, 1, 1};
    Random random(8);
    Cluster cluster = Cluster::on_hosts(layout, 2);
    wire::Descriptor descriptor{DType::float32, ReduceOp::sum, 100'000};
    descriptor.segment_codec = codec;
    descriptor.seed = 5;
    Collective collective = random_collective(descriptor, layout.size(), 256, {0.5}, random);
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < layout.size(); ++rank) {
      operations.push_back(submit(cluster, collective, rank));
    }
    for (const OperationPtr& operation : operations) REQUIRE_FALSE(outcome(operation));
    for (RankTensor& tensor : collective.ranks) {
      CHECK((tensor.result() == collective.ranks[0].result()));
    }
    CHECK((collective.ranks[0].result() != collective.expected));
    cluster.close();
  }
}

TEST_CASE("ranks of any host that disagree get an error that names them, and go on") {
  for (const Layout& layout : kLayouts) {
    const std::size_t ranks = layout.size();
    Random random(9);
    Cluster cluster = Cluster::on_hosts(layout, 2);
    Collective one =
        random_collective({DType::int32, ReduceOp::sum, 100'000}, ranks, 256, {1}, random);
    Collective other =
        random_collective({DType::int32, ReduceOp::max, 100'000}, ranks, 256, {1}, random);
    std::vector<OperationPtr> operations;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      operations.push_back(submit(cluster, rank == ranks - 1 ? other : one, rank));
    }
    for (const OperationPtr& operation : operations) {
      const Status failure = outcome(operation);
      REQUIRE(failure);
      CHECK(failure->code == ErrorCode::mismatch);
    }
    check_works(cluster, {DType::int32, ReduceOp::sum, 50'000}, random);
    cluster.close();
  }
}

TEST_CASE("a rank that dies is named on all ranks of all hosts") {
  const Layout layout{0, 0, 1, 1};
  for (Rank lost = 0; lost < 4; ++lost) {
    Random random(10);
    Cluster cluster = Cluster::on_hosts(layout, 1, lost);
    Collective collective =
        random_collective({DType::float32, ReduceOp::sum, 100'000}, 4, 256, {1}, random);
    std::vector<OperationPtr> operations;
    for (const std::size_t rank : cluster.present()) {
      operations.push_back(submit(cluster, collective, rank));
    }
    for (Socket& socket : cluster.sockets_of(lost)[0]) socket.close();
    for (const OperationPtr& operation : operations) {
      check_failed(outcome(operation), ErrorCode::peer_lost, lost);
    }
  }
}

TEST_CASE("a rank that comes late is named by its own host") {
  const Layout layout{0, 0, 1, 1};
  Random random(11);
  Cluster cluster = Cluster::on_hosts(layout, 1);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 100'000}, 4, 256, {1}, random);
  std::vector<OperationPtr> operations;
  for (const std::size_t rank : {0u, 1u, 3u}) {
    auto arguments = arguments_of(collective, rank);
    arguments.deadline = comm::Clock::now() + std::chrono::milliseconds{200};
    operations.push_back(cluster[rank].submit(arguments));
  }
  for (const OperationPtr& operation : operations) {
    check_failed(outcome(operation), ErrorCode::timeout, 2);
  }
}

// Neither rank of the other host has called it, so that nobody there can tell who is late.
TEST_CASE("a host that is late is named, and not the owners that wait for it") {
  Random random(6);
  Cluster cluster = Cluster::on_hosts({0, 0, 1, 1}, 1);
  check_works(cluster, {DType::int32, ReduceOp::sum, 200'000}, random);
  Collective collective =
      random_collective({DType::int32, ReduceOp::sum, 200'000}, 4, 256, {0.5}, random);
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto arguments = arguments_of(collective, rank);
    arguments.deadline = comm::Clock::now() + std::chrono::milliseconds{300};
    operations.push_back(cluster[rank].submit(arguments));
  }
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == ErrorCode::timeout);
    CHECK((failure->rank == 2 || failure->rank == 3));
    CHECK(failure->message.find("from the host(s) of rank(s)") != std::string::npos);
  }
}

}  // namespace hosts_test
