// Sums by datagrams, with all threads and sockets that they take, on good networks and on bad ones.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"
#include "slot_operations.hpp"

namespace comm_slots_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::SlotFigure;

constexpr net::Disturbance kBad{
    .loss = 0.01, .duplicate = 0.02, .reorder = 0.02, .corrupt = 0.01, .seed = 3};

void check_many(SlotAggregators& aggregators, std::uint32_t ranks, const SlotSettings& settings,
                Random& random) {
  std::deque<Collective> collectives;
  std::deque<Operations> operations;
  SlotJob job(aggregators, ranks, settings);
  for (int i = 0; i < 20; ++i) {
    // One at least that is a sum, and too large to be left to the stream.
    const wire::Descriptor descriptor{
        pick(kDTypes, random), i == 0 ? ReduceOp::sum : pick(kOps, random),
        i == 0 ? 100'000 : below(one_in(4, random) ? 200'000 : 3000, random)};
    collectives.push_back(
        random_collective(descriptor, ranks, 256, pick(kDensities, random), random));
    operations.push_back(submit_all(job.cluster(), collectives.back()));
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    CAPTURE(wire::describe(collectives[i].descriptor));
    check_all_done(operations[i], collectives[i]);
  }
  CHECK(job.figure(SlotFigure::datagrams_sent, 0) > 0);
  job.cluster().close();
}

TEST_CASE("many operations are in flight, on good networks and on bad ones") {
  for (const std::uint32_t ranks : {1u, 2u, 4u}) {
    for (const std::size_t owners : {1, 3}) {
      for (const bool is_bad : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(owners);
        CAPTURE(is_bad);
        Random random(10 * ranks + owners);
        const auto disturbance = is_bad ? std::optional(kBad) : std::nullopt;
        SlotAggregators aggregators(owners, {}, disturbance);
        check_many(aggregators, ranks, {}, random);
      }
    }
  }
}

// Small ones are announced to one aggregator each, and no two ranks hear of them in one order.
TEST_CASE("operations begin in one order on all ranks, whichever gate opens first") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::deque<Collective> collectives;
    SlotAggregators aggregators(4);
    SlotJob job(aggregators, 4, {.arithmetic = proto::Arithmetic::fixed});
    for (int i = 0; i < 100; ++i) {
      collectives.push_back(
          random_collective({DType::int32, ReduceOp::sum, 600}, 4, 256, {1}, random));
    }
    std::vector<Operations> operations(4);
    job.cluster().at_once([&](std::size_t rank) {
      for (Collective& collective : collectives) {
        operations[rank].push_back(submit(job.cluster(), collective, rank));
      }
    });
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      for (std::size_t rank = 0; rank < 4; ++rank) {
        check_done(operations[rank][i], collectives[i], rank);
      }
    }
    job.cluster().close();
  }
}

TEST_CASE("a mismatch among small operations holds up no later one") {
  Random random(5);
  SlotAggregators aggregators(3);
  SlotJob job(aggregators, 2, {.arithmetic = proto::Arithmetic::fixed});
  for (int i = 0; i < 20; ++i) {
    Collective usual = random_collective({DType::int32, ReduceOp::sum, 100}, 2, 256, {1}, random);
    Collective odd = random_collective({DType::int32, ReduceOp::sum, 99}, 2, 256, {1}, random);
    Collective next = random_collective({DType::int32, ReduceOp::sum, 300}, 2, 256, {1}, random);
    const Operations failing = {submit(job.cluster(), usual, 0), submit(job.cluster(), odd, 1)};
    const Operations good = submit_all(job.cluster(), next);
    for (const OperationPtr& operation : failing) {
      const Status failure = outcome(operation);
      REQUIRE(failure);
      CHECK(failure->code == ErrorCode::mismatch);
    }
    check_all_done(good, next);
  }
  job.cluster().close();
}

TEST_CASE("datagrams are as large as the path takes them") {
  for (const std::uint32_t datagram_bytes : {576u, 1472u, 8972u}) {
    CAPTURE(datagram_bytes);
    Random random(datagram_bytes);
    SlotAggregators aggregators(1);
    check_many(aggregators, 2, {.datagram_bytes = datagram_bytes}, random);
  }
}

TEST_CASE("several jobs at once share an aggregator, and not their sums") {
  SlotAggregators aggregators(1);
  std::vector<std::jthread> jobs;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    jobs.emplace_back([&, number] {
      Random random(number);
      SlotJob job(aggregators, 2, {.job = number});
      for (int i = 0; i < 5; ++i) check_works(job.cluster(), kLargeSum, random);
      job.cluster().close();
    });
  }
}

TEST_CASE("jobs with the same number follow each other, from other addresses") {
  SlotAggregators aggregators(2);
  Random random(1);
  for (int i = 0; i < 4; ++i) {
    SlotJob job(aggregators, 2 + static_cast<std::uint32_t>(i % 2));
    check_works(job.cluster(), kLargeSum, random);
    job.cluster().close();
    wait_until([&] { return aggregators[0].stats().jobs + aggregators[1].stats().jobs == 0; });
  }
}

// --- Fixed point ---

constexpr SlotSettings kFixed{.arithmetic = proto::Arithmetic::fixed};

Collective fixed_collective(const wire::Descriptor& descriptor, std::uint16_t ranks,
                            Random& random) {
  const auto arithmetic = proto::Arithmetic::fixed;
  return random_operation({.workers = ranks}, descriptor, arithmetic, {0.7}, random).collective;
}

TEST_CASE("sums in fixed point are those of plain arithmetic") {
  Random random(20);
  SlotAggregators aggregators(2, {}, kBad);
  SlotJob job(aggregators, 3, kFixed);
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::int32}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      if (dtype == DType::int32 && op == ReduceOp::avg) continue;
      CAPTURE(name_of(dtype));
      Collective collective = fixed_collective({dtype, op, 70'001}, 3, random);
      check_all_done(submit_all(job.cluster(), collective), collective);
    }
  }
  job.cluster().close();
}

TEST_CASE("what is not finite stays so, and fails nothing") {
  Random random(21);
  SlotAggregators aggregators(1, {}, kBad);
  SlotJob job(aggregators, 3, kFixed);
  const proto::SlotPool pool{.workers = 3};
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < 3; ++rank) {
    inputs.push_back(random_tensor(kLargeSum, pool.block, {0.5}, random));
  }
  store_pattern(inputs[1].data(), 150'000, DType::float32, 0x7f800000);
  Collective bad =
      operation_of(pool, kLargeSum, proto::Arithmetic::fixed, std::move(inputs), random).collective;
  Collective after = fixed_collective(kLargeSum, 3, random);
  const Operations first = submit_all(job.cluster(), bad);
  const Operations last = submit_all(job.cluster(), after);
  check_all_done(first, bad);
  check_all_done(last, after);
  job.cluster().close();
}

}  // namespace comm_slots_test
