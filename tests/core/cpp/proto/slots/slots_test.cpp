// Slots over links that lose nothing: sums to the bit in every type, operation and shape, the same
// bits as the stream's owner, and no more datagrams than the look-ahead needs.
#include <doctest/doctest.h>

#include "proto/stream/owner/reduce.hpp"
#include "slot_operations.hpp"
#include "state_tables.hpp"

namespace slots_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Arithmetic;
using proto::SlotPool;

// Datagrams with so many columns of blocks of 16 elements of 4 bytes, or of at least one of 8.
SlotPool small_pool(std::uint16_t workers, std::uint16_t slots = 4, std::size_t columns = 1) {
  return {.slots = slots,
          .workers = workers,
          .datagram_bytes =
              std::max(wire::datagram_head(columns) + columns * 64, wire::datagram_head(1) + 128),
          .block = 16,
          .job = 77,
          .epoch = 3};
}

void check_operation(const SlotPool& pool, std::uint32_t aggregators, SlotOperation operation,
                     std::uint64_t seed, const LinkShape& link = {}) {
  CAPTURE(seed);
  SlotNetwork<> network({.pool = pool, .aggregators = aggregators, .link = link}, seed);
  begin_everywhere(network, pool.workers, operation, 0);
  network.run();
  check_result(network, operation, 0, aggregators);
  check_nothing_left(network, pool.workers, aggregators);
  CHECK(network.retransmissions() == 0);
}

TEST_CASE("every element type, operation and density") {
  Random random(1);
  std::uint64_t seed = 0;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const Density density : kDensities) {
        const SlotPool pool = small_pool(3, 4, 1 + below(3, random));
        check_operation(
            pool, 1, random_operation(pool, {dtype, op, 1001}, Arithmetic::exact, density, random),
            ++seed);
        if (!proto::has_fixed_point(dtype, op)) continue;
        check_operation(
            pool, 1, random_operation(pool, {dtype, op, 1001}, Arithmetic::fixed, density, random),
            ++seed);
      }
    }
  }
}

TEST_CASE("every size of world, columns, slots and aggregators") {
  Random random(2);
  std::uint64_t seed = 0;
  for (std::uint16_t workers = 1; workers <= 8; ++workers) {
    for (std::size_t columns = 1; columns <= 9; columns += 2) {
      for (std::uint32_t aggregators = 1; aggregators <= 3; ++aggregators) {
        const SlotPool pool =
            small_pool(workers, static_cast<std::uint16_t>(1 + below(9, random)), columns);
        check_operation(pool, aggregators, any_operation(pool, 3000, random), ++seed);
      }
    }
  }
}

TEST_CASE("tensors around the sizes of blocks and of rows of slots") {
  Random random(3);
  const SlotPool pool = small_pool(2, 3, 2);
  for (const std::size_t count : {0, 1, 15, 16, 17, 31, 32, 33, 95, 96, 97, 191, 192, 193}) {
    for (const std::uint32_t aggregators : {1u, 2u, 5u}) {
      CAPTURE(count);
      check_operation(pool, aggregators,
                      random_operation(pool, {DType::float32, ReduceOp::sum, count},
                                       Arithmetic::exact, {0.7}, random),
                      count);
    }
  }
}

TEST_CASE("real sizes of datagrams") {
  Random random(4);
  for (const std::size_t datagram_bytes : {1472u, 8972u, 548u}) {
    SlotPool pool{.workers = 4, .datagram_bytes = datagram_bytes};
    for (int repeat = 0; repeat < 6; ++repeat) {
      check_operation(pool, 2, any_operation(pool, 200'000, random), datagram_bytes,
                      {.megabits = 5000});
    }
  }
}

TEST_CASE("several operations in flight, of which the slots take part in some") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const SlotPool pool =
        small_pool(static_cast<std::uint16_t>(1 + below(4, random)), 8, 1 + below(4, random));
    const auto aggregators = static_cast<std::uint32_t>(1 + below(2, random));
    SlotNetwork<> network({.pool = pool, .aggregators = aggregators}, seed);
    std::vector<SlotOperation> operations;
    for (int i = 0; i < 6; ++i) operations.push_back(any_operation(pool, 2000, random));
    for (std::uint64_t seq = 0; seq < operations.size(); ++seq) {
      for (std::size_t rank = 0; rank < pool.workers; ++rank) {
        network.time().at(Nanoseconds{100'000 * seq + below(100'000, random)}, [&, rank, seq] {
          network.begin(rank, seq, operations[seq].tensor(rank));
        });
      }
    }
    network.run();
    for (std::uint64_t seq = 0; seq < operations.size(); ++seq) {
      check_result(network, operations[seq], seq, aggregators);
    }
    check_nothing_left(network, pool.workers, aggregators);
  }
}

// --- The stream's bits ---

// What the stream's owner makes of dense segments of all ranks.
Buffer reduced_by_stream(const wire::Descriptor& descriptor, const std::vector<Buffer>& inputs) {
  const BlockLayout layout{descriptor.count, element_size(descriptor.dtype), 256};
  std::vector<proto::Contribution> contributions;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    auto contribution = proto::read_segment(
        static_cast<Rank>(rank), {wire::Format::dense, Codec::raw, Bytes::copy_of(inputs[rank])},
        layout);
    REQUIRE(contribution);
    contributions.push_back(*contribution);
  }
  proto::Scratch scratch;
  const proto::Segment sum = proto::reduce(contributions,
                                           {.dtype = descriptor.dtype,
                                            .op = descriptor.op,
                                            .world_size = static_cast<std::int32_t>(inputs.size())},
                                           layout, scratch);
  const auto view = sum.payload.view();
  return Buffer(view.begin(), view.end());
}

TEST_CASE("exact sums have the bits of the stream") {
  Random random(5);
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::uint16_t workers : {1, 2, 5}) {
        const SlotPool pool{.slots = 4, .workers = workers};
        const wire::Descriptor descriptor{dtype, op, 5000};
        std::vector<Buffer> inputs;
        for (std::size_t rank = 0; rank < workers; ++rank) {
          inputs.push_back(random_elements(descriptor.count, dtype, random));
        }
        SlotOperation operation = operation_of(pool, descriptor, Arithmetic::exact, inputs, random);
        operation.collective.expected = reduced_by_stream(descriptor, inputs);
        check_operation(pool, 1, std::move(operation), workers);
      }
    }
  }
}

// --- Look-ahead ---

TEST_CASE("only blocks that are not zero are sent, and no round is without one") {
  Random random(6);
  const SlotPool pool = small_pool(2, 4);
  constexpr std::size_t kBlocks = 400;
  SlotOperation operation = random_operation(pool, {DType::float32, ReduceOp::sum, 16 * kBlocks},
                                             Arithmetic::exact, {0.05}, random);
  operation.scans = true;
  std::uint64_t sent[2] = {};
  std::uint64_t rounds = pool.slots;  // that open
  for (std::size_t block = 0; block < kBlocks; ++block) {
    bool is_named = false;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const bool has = !is_zero(operation.collective.ranks[rank].input(), 16 * block,
                                16 * (block + 1), DType::float32);
      sent[rank] += has;
      is_named |= has;
    }
    rounds += is_named;
  }
  SlotNetwork<> network({.pool = pool}, 6);
  begin_everywhere(network, 2, operation, 0);
  network.run();
  check_result(network, operation, 0, 1);
  CHECK(network.aggregator().counters().results == rounds);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(network.worker(rank).counters().blocks_sent == sent[rank]);
    CHECK(network.worker(rank).counters().datagrams == rounds);
  }
}

// --- What is not finite ---

// Some elements become infinite or NaN.
void spoil(Buffer& input, std::size_t count, DType dtype, std::uint64_t one_of, Random& random) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = pick({HUGE_VAL, -HUGE_VAL, std::nan("")}, random);
    if (one_in(one_of, random)) put_rounded(input, i, dtype, value);
  }
}

SlotOperation spoilt_operation(const SlotPool& pool, const wire::Descriptor& descriptor,
                               std::uint64_t one_of, Random& random) {
  std::vector<Buffer> inputs;
  for (std::size_t rank = 0; rank < pool.workers; ++rank) {
    inputs.push_back(random_tensor(descriptor, pool.block, pick(kDensities, random), random));
    make_finite(inputs.back(), descriptor.count, descriptor.dtype);
    if (one_in(2, random)) spoil(inputs.back(), descriptor.count, descriptor.dtype, one_of, random);
  }
  return operation_of(pool, descriptor, Arithmetic::fixed, std::move(inputs), random);
}

TEST_CASE("what is not finite stays so in fixed point, and all else is added up") {
  std::uint64_t seed = 0;
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      for (const std::uint64_t one_of : {1, 2, 20, 500}) {
        for (int repeat = 0; repeat < 10; ++repeat) {
          Random random(++seed);
          const SlotPool pool =
              small_pool(static_cast<std::uint16_t>(1 + below(5, random)), 2, 1 + below(3, random));
          check_operation(pool, 1 + static_cast<std::uint32_t>(below(2, random)),
                          spoilt_operation(pool, {dtype, op, 501}, one_of, random), seed);
        }
      }
    }
  }
}

TEST_CASE("a block with what is not finite takes one round more, and no other block does") {
  Random random(7);
  const SlotPool pool = small_pool(2, 2);
  constexpr std::size_t kBlocks = 20;
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < 2; ++rank) {
    inputs.push_back(random_elements(16 * kBlocks, DType::float32, random));
    make_finite(inputs.back(), 16 * kBlocks, DType::float32);
  }
  for (const std::size_t block : {3, 4, 11}) {
    put_rounded(inputs[block % 2], 16 * block + 5, DType::float32, HUGE_VAL);
  }
  SlotOperation operation = operation_of(pool, {DType::float32, ReduceOp::sum, 16 * kBlocks},
                                         Arithmetic::fixed, std::move(inputs), random);
  SlotNetwork<> network({.pool = pool}, 7);
  begin_everywhere(network, 2, operation, 0);
  network.run();
  check_result(network, operation, 0, 1);
  CHECK(network.aggregator().counters().results == pool.slots + kBlocks + 3);
}

// --- Geometry ---

TEST_CASE("blocks and columns of a datagram") {
  const auto layout = [](std::size_t bytes, DType dtype, Arithmetic arithmetic) {
    return proto::slot_layout({.datagram_bytes = bytes},
                              {.dtype = dtype, .count = 1'000'000, .arithmetic = arithmetic});
  };
  CHECK(layout(1472, DType::float32, Arithmetic::exact).block == 256);
  CHECK(layout(1472, DType::float32, Arithmetic::exact).columns == 1);
  CHECK(layout(1472, DType::float64, Arithmetic::exact).block == 128);
  CHECK(layout(1472, DType::float16, Arithmetic::exact).columns == 2);
  CHECK(layout(1472, DType::float16, Arithmetic::fixed).columns == 1);
  CHECK(layout(1472, DType::float16, Arithmetic::fixed).wire == DType::int32);
  CHECK(layout(8972, DType::float32, Arithmetic::exact).columns == 8);
  CHECK(layout(1472, DType::float32, Arithmetic::exact).blocks == 3907);
  CHECK_FALSE(proto::fits_slots({.datagram_bytes = 100}, {.dtype = DType::float64, .count = 1}));
  CHECK_FALSE(proto::fits_slots({}, {.count = std::uint64_t{1} << 48}));
  CHECK(proto::fits_slots({}, {.count = std::uint64_t{1} << 39}));
}

TEST_CASE("every block is in one column of one slot of one owner") {
  Random random(8);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const SlotPool pool =
        small_pool(2, static_cast<std::uint16_t>(1 + below(7, random)), 1 + below(8, random));
    const auto owners = static_cast<std::uint32_t>(1 + below(4, random));
    const std::size_t count = below(5000, random);
    std::size_t blocks = 0;
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      const auto layout =
          proto::slot_layout(pool, {.count = count, .owners = owners, .owner = owner});
      std::vector<int> met(layout.blocks);
      for (std::uint32_t slot = 0; slot < pool.slots; ++slot) {
        CHECK(layout.has_slot(slot) == (slot < layout.slots()));
        for (std::uint32_t c = 0; c < layout.columns; ++c) {
          for (auto at = layout.first(layout.column(slot, c)); at != wire::kNoBlock;
               at = layout.below(at)) {
            ++met[at];
          }
        }
      }
      CHECK(std::ranges::all_of(met, [](int times) { return times == 1; }));
      blocks += layout.blocks;
    }
    CHECK(blocks == ceil_div<std::size_t>(count, 16));
  }
}

}  // namespace slots_test
