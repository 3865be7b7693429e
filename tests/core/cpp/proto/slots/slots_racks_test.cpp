// Slots in two levels: each rack's aggregator sums its workers, and the root the racks. Whatever
// the links do, the sums are those of the racks in order; in fixed point, and of integers, the flat
// ones.
#include <doctest/doctest.h>

#include <cstdlib>
#include <numeric>
#include <string>

#include "slot_operations.hpp"
#include "slot_wrapping.hpp"
#include "state_tables.hpp"

namespace slots_racks_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Arithmetic;
using proto::SlotAggregator;
using proto::SlotPool;
using Racks = std::vector<std::uint16_t>;

std::uint64_t seeds() {
  const char* const wanted = std::getenv("SPARSEWIRE_SEEDS");
  return wanted ? std::stoull(wanted) : 40;
}

SlotPool pool_for(const Racks& racks, std::uint16_t slots = 4, std::size_t columns = 1) {
  return {.slots = slots,
          .workers = std::accumulate(racks.begin(), racks.end(), std::uint16_t{0}),
          .datagram_bytes =
              std::max(wire::datagram_head(columns) + columns * 64, wire::datagram_head(1) + 128),
          .block = 16,
          .job = 91,
          .epoch = 5};
}

// Sums of each rack's ranks in order, and of these in the order of the racks.
void expect_racks(SlotOperation& operation, const Racks& racks) {
  Collective& collective = operation.collective;
  const bool is_rounded =
      operation.arithmetic == Arithmetic::fixed && is_floating(collective.descriptor.dtype);
  if (is_rounded) return;  // Integers on their way: the flat sums.
  wire::Descriptor share = collective.descriptor;
  if (share.op == ReduceOp::avg) share.op = ReduceOp::sum;
  std::vector<Buffer> shares;
  std::size_t rank = 0;
  for (const std::uint16_t workers : racks) {
    std::vector<Buffer> inputs;
    for (const std::size_t end = rank + workers; rank < end; ++rank) {
      inputs.push_back(collective.ranks[rank].input());
    }
    shares.push_back(reference_all_reduce(share, inputs));
  }
  collective.expected = reference_all_reduce(collective.descriptor, shares, rank);
}

void check_operation(const Racks& racks, const SlotPool& pool, SlotOperation operation,
                     std::uint64_t seed) {
  CAPTURE(seed);
  expect_racks(operation, racks);
  SlotNetwork<> network({.pool = pool, .racks = racks}, seed);
  begin_everywhere(network, pool.workers, operation, 0);
  network.run();
  check_result(network, operation, 0, 1);
  check_nothing_left(network, pool.workers, 1);
  CHECK(network.retransmissions() == 0);
  for (std::size_t rack = 0; rack < racks.size(); ++rack) {
    CHECK(network.rack(rack).counters().passed == network.aggregator().counters().results);
    CHECK(network.rack(rack).counters().passed_again == 0);
  }
}

TEST_CASE("every element type, operation and density") {
  Random random(1);
  std::uint64_t seed = 0;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const Density density : kDensities) {
        const Racks racks = pick({Racks{2, 2}, Racks{3, 1, 2}}, random);
        const SlotPool pool = pool_for(racks, 4, 1 + below(3, random));
        for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fixed}) {
          if (arithmetic == Arithmetic::fixed && !proto::has_fixed_point(dtype, op)) continue;
          check_operation(racks, pool,
                          random_operation(pool, {dtype, op, 1001}, arithmetic, density, random),
                          ++seed);
        }
      }
    }
  }
}

TEST_CASE("every number of racks, of workers in them, of columns and slots") {
  Random random(2);
  std::uint64_t seed = 0;
  for (const Racks& racks : {Racks{1}, Racks{1, 1}, Racks{4}, Racks{2, 1}, Racks{1, 5},
                             Racks{1, 2, 3}, Racks{2, 2, 2, 2}}) {
    for (std::size_t columns = 1; columns <= 9; columns += 2) {
      const SlotPool pool =
          pool_for(racks, static_cast<std::uint16_t>(1 + below(9, random)), columns);
      check_operation(racks, pool, any_operation(pool, 3000, random), ++seed);
    }
  }
}

// --- Trouble ---

struct Totals {
  std::uint64_t datagrams = 0;
  std::uint64_t lost = 0;
  std::uint64_t sent_again = 0;
};

template <typename Network = SlotNetwork<>>
std::vector<SlotOperation> run_scenario(const Faults& faults, std::uint64_t seed, Totals& totals,
                                        bool must_be_right = true) {
  CAPTURE(seed);
  Random random(seed);
  Racks racks;
  for (std::size_t i = 1 + below(4, random); i != 0; --i) {
    racks.push_back(static_cast<std::uint16_t>(1 + below(4, random)));
  }
  NetworkShape shape;
  shape.pool =
      pool_for(racks, static_cast<std::uint16_t>(1 + below(24, random)), 1 + below(5, random));
  shape.aggregators = one_in(3, random) ? 2 : 1;
  shape.faults = faults;
  shape.racks = racks;
  if (one_in(2, random)) shape.trunk.megabits = 250;
  std::vector<SlotOperation> operations;
  for (std::size_t i = 1 + below(4, random); i != 0; --i) {
    operations.push_back(any_operation(shape.pool, one_in(10, random) ? 40'000 : 3'000, random));
    expect_racks(operations.back(), racks);
  }
  Network network(shape, seed);
  for (std::uint64_t seq = 0; seq < operations.size(); ++seq) {
    for (std::size_t rank = 0; rank < shape.pool.workers; ++rank) {
      network.time().at(Nanoseconds{300'000 * seq + below(50'000, random)},
                        [&, rank, seq] { network.begin(rank, seq, operations[seq].tensor(rank)); });
    }
  }
  network.run(must_be_right ? std::chrono::minutes{60} : std::chrono::seconds{5});
  if (must_be_right) {
    for (std::uint64_t seq = 0; seq < operations.size(); ++seq) {
      check_result(network, operations[seq], seq, shape.aggregators);
    }
    check_nothing_left(network, shape.pool.workers, shape.aggregators);
  }
  totals.datagrams += network.counts().datagrams;
  totals.lost += network.counts().lost;
  totals.sent_again += network.retransmissions();
  for (std::size_t rack = 0; rack < racks.size(); ++rack) {
    for (std::size_t i = 0; i < shape.aggregators; ++i) {
      totals.sent_again += network.rack(rack, i).counters().passed_again;
    }
  }
  return operations;
}

template <typename Network = SlotNetwork<>>
void check_faults(const Faults& faults) {
  Totals totals;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) run_scenario<Network>(faults, seed, totals);
  MESSAGE(totals.datagrams << " datagrams, " << totals.lost << " lost, " << totals.sent_again
                           << " sent again");
  // What is lost above a rack is asked for again in every rack, and passed on once more; and so is
  // what a link has doubled.
  const auto doubled = static_cast<std::uint64_t>(faults.duplication * totals.datagrams);
  CHECK(totals.sent_again <= 4 * totals.lost + doubled + totals.datagrams / 100);
}

TEST_CASE("loss of 0.1%") { check_faults({.loss = 0.001}); }
TEST_CASE("loss of 1%") { check_faults({.loss = 0.01}); }
TEST_CASE("loss of 5%") { check_faults({.loss = 0.05}); }
TEST_CASE("loss of 20%") { check_faults({.loss = 0.2}); }
TEST_CASE("duplication") { check_faults({.duplication = 0.1}); }
TEST_CASE("reordering") { check_faults({.reordering = 0.1}); }
TEST_CASE("corruption") { check_faults({.corruption = 0.05}); }
TEST_CASE("strangers") { check_faults({.loss = 0.01, .strangers = 0.2}); }
TEST_CASE("everything at once") {
  check_faults({.loss = 0.02,
                .duplication = 0.05,
                .reordering = 0.05,
                .corruption = 0.01,
                .strangers = 0.05});
}

TEST_CASE("rounds that pass 2^32") {
  check_faults<SlotNetwork<LateWorker, LateAggregator>>(
      {.loss = 0.05, .duplication = 0.05, .strangers = 0.05});
}

// --- Negative control ---

// Takes every result of the parent for the one that it awaits.
class CredulousAggregator : public SlotAggregator {
 public:
  using SlotAggregator::SlotAggregator;

  void on_parent(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
    wire::Datagram believed = datagram;
    if (datagram.header.slot < slots_.size()) {
      believed.header.round = slots_[datagram.header.slot].last().header.round;
    }
    SlotAggregator::on_parent(believed, out);
  }
};

TEST_CASE("sums go wrong where a rack takes the result of another round") {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Totals totals;
    const auto operations = run_scenario<SlotNetwork<proto::SlotWorker, CredulousAggregator>>(
        {.loss = 0.05, .duplication = 0.1}, seed, totals, false);
    for (const SlotOperation& operation : operations) {
      for (const RankTensor& tensor : operation.collective.ranks) {
        wrong += !same(tensor.result(), operation.collective.expected);
      }
    }
  }
  CHECK(wrong > 0);
}

TEST_CASE("the states of a round") {
  using State = proto::RoundState;
  using Step = proto::RoundStep;
  check_refuses_the_rest(proto::kRoundTransitions,
                         {State::blank, State::adding, State::waiting, State::complete},
                         {Step::start, Step::pass, Step::finish});
}

}  // namespace slots_racks_test
