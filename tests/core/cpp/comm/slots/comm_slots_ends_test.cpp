// Communicators that end, in whatever way, while their datagrams are on the way.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"

namespace comm_slots_ends_test {

using namespace sparsewire;
using namespace sparsewire::test;

// So slow that operations take some ten milliseconds.
constexpr net::Disturbance kSlow{
    .loss = 0.01, .reorder = 0.02, .delay = net::Microseconds{500}, .seed = 4};
constexpr std::uint32_t kRanks = 3;

// Once something of the operations is on its way, and, hopefully, much is not.
void await_datagrams(SlotAggregators& aggregators, std::uint64_t job, std::uint64_t count) {
  wait_until([&] { return aggregators.counters(job).contributions >= count; });
}

// A job in the midst of a few operations, whose memory goes as soon as they have ended.
class Busy {
 public:
  explicit Busy(std::uint64_t seed, std::size_t owners = 2)
      : random_(seed), aggregators_(owners, {}, kSlow) {
    job_.emplace(aggregators_, kRanks);
    for (int i = 0; i < 3; ++i) {
      collectives_.push_back(large_collective(kRanks, random_));
      operations_.push_back(submit_all(job_->cluster(), collectives_.back()));
    }
    await_datagrams(aggregators_, 1, 1 + below(1000, random_));
  }

  Random& random() { return random_; }
  SlotJob& job() { return *job_; }
  SlotAggregators& aggregators() { return aggregators_; }

  // Of each operation, on the ranks that can still be asked. Those that were quick have none.
  template <typename Check>
  void check_ends(Check check, std::size_t absent = kRanks) {
    while (!operations_.empty()) {
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        if (rank == absent) continue;
        const Status failure = outcome(operations_.front()[rank]);
        if (failure) check(*failure);
      }
      if (absent < kRanks) (void)outcome(operations_.front()[absent]);
      operations_.pop_front();
      collectives_.pop_front();
    }
  }

  void check_next_job() {
    job_.reset();
    for (std::size_t i = 0; i < aggregators_.size(); ++i) {
      wait_until([&] { return aggregators_[i].stats().workers == 0; });
      CHECK(aggregators_[i].stats().memory_reserved == 0);
    }
    SlotJob next(aggregators_, 2);
    check_works(next.cluster(), kLargeSum, random_);
    next.cluster().close();
  }

 private:
  Random random_;
  std::deque<Collective> collectives_;
  std::deque<Operations> operations_;
  SlotAggregators aggregators_;
  std::optional<SlotJob> job_;
};

TEST_CASE("an abort ends everything on every rank") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Busy busy(seed);
    const auto aborting = below(kRanks, busy.random());
    busy.job().cluster()[aborting].abort("enough");
    busy.check_ends([&](const Error& failure) {
      check_failed(failure, ErrorCode::aborted, static_cast<Rank>(aborting));
    });
    busy.check_next_job();
  }
}

TEST_CASE("a rank may close or go with operations in flight, and the others learn of it") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Busy busy(100 + seed);
    const auto going = below(kRanks, busy.random());
    seed % 2 ? busy.job().cluster().destroy(going)
             : busy.job().cluster()[going].close(std::chrono::seconds{1});
    busy.check_ends([&](const Error& failure) {
      check_failed(failure, ErrorCode::aborted, static_cast<Rank>(going));
    });
    busy.check_next_job();
  }
}

TEST_CASE("all ranks may go at once") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Busy busy(200 + seed);
    busy.job().cluster().at_once([&](std::size_t rank) { busy.job().cluster().destroy(rank); });
    busy.check_ends([&](const Error& failure) { CHECK(failure.code == ErrorCode::aborted); });
    busy.check_next_job();
  }
}

TEST_CASE("a rank whose connections end is named to the others") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Busy busy(300 + seed, 1);
    const auto victim = below(kRanks, busy.random());
    busy.job().cut(victim);
    busy.check_ends(
        [&](const Error& failure) {
          check_failed(failure, ErrorCode::peer_lost, static_cast<Rank>(victim));
        },
        victim);
    busy.check_next_job();
  }
}

TEST_CASE("aggregators that go end everything") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Busy busy(400 + seed);
    busy.aggregators().go();
    busy.check_ends([](const Error& failure) {
      check_failed(failure, ErrorCode::peer_lost, kNoRank);
      CHECK(failure.message.find("aggregator") != std::string::npos);
    });
  }
}

// The gate is passed by connections, so this is the only way in which a firewall shows.
TEST_CASE("where no datagram passes any more, a deadline ends the operation") {
  Random random(22);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2, {.disturbance = net::Disturbance{.loss = 1}});
  Collective collective = large_collective(2, random);
  Operations operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    comm::Operation::Arguments limited = arguments_of(collective, rank);
    limited.deadline = comm::Clock::now() + std::chrono::milliseconds{300};
    operations.push_back(job.cluster()[rank].submit(limited));
  }
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == ErrorCode::timeout);
  }
}

}  // namespace comm_slots_ends_test
