// What a communicator tells of itself while it works: whom operations wait for, how peers are, and
// how much of the input was sent.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "cluster.hpp"

namespace comm_survey_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::chrono::seconds kAnswer{20};

// Whom the first lane says that the oldest operation waits for.
std::vector<Rank> awaited(comm::Communicator& communicator) {
  const comm::Survey survey = communicator.survey(kAnswer);
  REQUIRE(survey.lanes.front());
  const auto& operations = survey.lanes.front()->awaited;
  return operations.empty() ? std::vector<Rank>{} : operations.begin()->second.ranks;
}

TEST_CASE("a rank that is late is the one that all others wait for") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    CAPTURE(lanes);
    Random random(lanes);
    Cluster cluster = Cluster::colocated(3, lanes);
    Collective collective =
        random_collective({DType::float32, ReduceOp::sum, 1'000'000}, 3, 256, {0.5}, random);
    std::vector<OperationPtr> operations;
    for (const std::size_t rank : {0u, 1u}) {
      operations.push_back(submit(cluster, collective, rank));
    }
    for (const std::size_t rank : {0u, 1u}) {
      wait_until([&] { return awaited(cluster[rank]) == std::vector<Rank>{2}; });
      const comm::Survey survey = cluster[rank].survey(kAnswer);
      REQUIRE(survey.operations.size() == 1);
      CHECK(survey.operations.front().current.op == "all_reduce");
      CHECK(survey.operations.front().bytes == 4'000'000);
      CHECK(survey.lanes.size() == lanes);
    }
    CHECK(cluster[2].survey(kAnswer).operations.empty());
    operations.push_back(submit(cluster, collective, 2));
    for (std::size_t rank = 0; rank < 3; ++rank) check_done(operations[rank], collective, rank);
    CHECK(cluster[0].survey(kAnswer).operations.empty());
    CHECK(awaited(cluster[0]).empty());
    cluster.close();
    CHECK_FALSE(cluster[0].survey(kAnswer).lanes.front());
  }
}

TEST_CASE("peers are listed with their connections and their last sign of life") {
  Random random(1);
  Cluster cluster = Cluster::colocated(3, 1);
  check_works(cluster, {DType::float32, ReduceOp::sum, 100'000}, random);
  const auto survey = cluster[1].survey(kAnswer);
  REQUIRE(survey.lanes.front());
  const auto& peers = survey.lanes.front()->peers;
  REQUIRE(peers.size() == 2);
  for (const comm::PeerSurvey& peer : peers) {
    CHECK(peer.name == "rank " + std::to_string(peer.rank));
    CHECK(peer.rank != 1);
    CHECK(peer.is_connected);
    CHECK(peer.bytes_sent > 0);
    CHECK(peer.bytes_received > 0);
    REQUIRE(peer.quiet);
    CHECK(*peer.quiet < kAnswer);
  }
  cluster.close();
}

TEST_CASE("of a tensor with zero blocks the others are counted") {
  constexpr std::uint64_t kBlocks = 4'000;
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, kBlocks * 256};
  Cluster cluster = Cluster::colocated(2, 1);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(descriptor.count));
  for (std::uint64_t block = 0; block < kBlocks; block += 4) {
    std::fill_n(tensors[0].begin() + static_cast<std::ptrdiff_t>(block * 256), 256, 1.0f);
  }
  std::vector<OperationPtr> operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto* const memory = reinterpret_cast<std::byte*>(tensors[rank].data());
    operations.push_back(cluster[rank].submit({memory, memory, {.descriptor = descriptor}}));
  }
  for (const OperationPtr& operation : operations) REQUIRE_FALSE(outcome(operation));
  CHECK(cluster[0].stats().elements == descriptor.count);
  CHECK(cluster[0].stats().elements_sent == descriptor.count / 4);
  CHECK(cluster[1].stats().elements_sent == 0);
  cluster.close();
}

TEST_CASE("whoever asks while operations run is answered, and disturbs nothing") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    CAPTURE(lanes);
    Random random(7);
    Cluster cluster = Cluster::colocated(3, lanes);
    std::atomic<bool> ends = false;
    std::atomic<int> answers = 0;
    std::atomic<bool> torn = false;
    std::thread asker([&] {
      for (std::size_t rank = 0; !ends; rank = (rank + 1) % 3) {
        const comm::Survey survey = cluster[rank].survey(kAnswer);
        answers += survey.lanes.front().has_value();
        if (survey.in_flight != survey.operations.size()) torn = true;
        (void)cluster[rank].stats();
      }
    });
    for (int i = 0; i < 30 || answers < 10; ++i) {
      check_works(cluster, {DType::float32, ReduceOp::sum, 50'000}, random);
    }
    ends = true;
    asker.join();
    CHECK_FALSE(torn);
    cluster.close();
  }
}

}  // namespace comm_survey_test
