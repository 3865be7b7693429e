// Slots over links that lose, double, reorder and damage datagrams: sums stay exact to the bit,
// every operation ends, and repeating stays cheap. A few seeds of each kind are run; as many as are
// wanted with SPARSEWIRE_SEEDS=10000 in the environment.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "slot_operations.hpp"
#include "slot_wrapping.hpp"

namespace slots_loss_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::SlotPool;

std::uint64_t seeds() {
  const char* const wanted = std::getenv("SPARSEWIRE_SEEDS");
  return wanted ? std::stoull(wanted) : 40;
}

// Takes every contribution for a new one.
class ForgetfulAggregator : public proto::SlotAggregator {
 public:
  using SlotAggregator::SlotAggregator;

  void on_datagram(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
    const wire::DatagramHeader& header = datagram.header;
    if (header.slot < slots_.size()) {
      seen(header.slot)[header.worker / 64] &= ~(std::uint64_t{1} << header.worker % 64);
    }
    SlotAggregator::on_datagram(datagram, out);
  }
};

// Of all seeds of one kind of trouble.
struct Totals {
  std::uint64_t datagrams = 0;
  std::uint64_t lost = 0;
  std::uint64_t retransmissions = 0;
};

// Any world, and operations whose blocks fill some rounds of its slots.
struct Scenario {
  NetworkShape shape;
  std::vector<SlotOperation> operations;

  Scenario(const Faults& faults, Random& random) {
    const std::size_t columns = one_in(2, random) ? 1 : 2 + below(4, random);
    shape.pool = {.slots = static_cast<std::uint16_t>(1 + below(24, random)),
                  .workers = static_cast<std::uint16_t>(1 + below(8, random)),
                  .datagram_bytes = std::max(wire::datagram_head(columns) + columns * 64,
                                             wire::datagram_head(1) + 128),
                  .block = 16,
                  .job = random(),
                  .epoch = static_cast<std::uint32_t>(random())};
    shape.aggregators = one_in(3, random) ? 2 : 1;
    shape.faults = faults;
    const std::size_t longest = one_in(10, random) ? 40'000 : 3'000;
    for (std::size_t i = 1 + below(4, random); i != 0; --i) {
      operations.push_back(any_operation(shape.pool, longest, random));
    }
  }
};

template <typename Network>
void begin_about_now(Network& network, Scenario& scenario, Random& random) {
  for (std::uint64_t seq = 0; seq < scenario.operations.size(); ++seq) {
    for (std::size_t rank = 0; rank < scenario.shape.pool.workers; ++rank) {
      network.time().at(Nanoseconds{300'000 * seq + below(50'000, random)}, [&, rank, seq] {
        network.begin(rank, seq, scenario.operations[seq].tensor(rank));
      });
    }
  }
}

template <typename Network = SlotNetwork<>>
void check_scenario(const Faults& faults, std::uint64_t seed, Totals& totals,
                    Nanoseconds lag = Nanoseconds{0}) {
  CAPTURE(seed);
  Random random(seed);
  Scenario scenario(faults, random);
  if (lag != Nanoseconds{0}) {
    scenario.shape.lags.resize(scenario.shape.pool.workers);
    scenario.shape.lags[below(scenario.shape.pool.workers, random)] = lag;
  }
  Network network(scenario.shape, seed);
  begin_about_now(network, scenario, random);
  network.run();
  for (std::uint64_t seq = 0; seq < scenario.operations.size(); ++seq) {
    check_result(network, scenario.operations[seq], seq, scenario.shape.aggregators);
  }
  check_nothing_left(network, scenario.shape.pool.workers, scenario.shape.aggregators);
  totals.datagrams += network.counts().datagrams;
  totals.lost += network.counts().lost;
  totals.retransmissions += network.retransmissions();
}

void check_faults(const Faults& faults) {
  Totals totals;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) check_scenario(faults, seed, totals);
  CAPTURE(totals.datagrams);
  CAPTURE(totals.lost);
  MESSAGE(totals.datagrams << " datagrams, " << totals.lost << " lost, " << totals.retransmissions
                           << " sent again");
  CHECK(totals.retransmissions <= 2 * totals.lost + totals.datagrams / 100);
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

TEST_CASE("a worker that is slow") {
  Totals totals;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    check_scenario({.loss = 0.01}, seed, totals, std::chrono::milliseconds{5});
  }
}

TEST_CASE("rounds that pass 2^32") {
  Totals totals;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    check_scenario<SlotNetwork<LateWorker, LateAggregator>>(
        {.loss = 0.05, .duplication = 0.05, .strangers = 0.05}, seed, totals);
  }
}

// --- Negative control ---

TEST_CASE("sums go wrong where duplicates are not told apart") {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    Scenario scenario({.loss = 0.05, .duplication = 0.1}, random);
    SlotNetwork<proto::SlotWorker, ForgetfulAggregator> network(scenario.shape, seed);
    begin_about_now(network, scenario, random);
    network.run(std::chrono::seconds{5});
    for (const SlotOperation& operation : scenario.operations) {
      for (const RankTensor& tensor : operation.collective.ranks) {
        wrong += !same(tensor.result(), operation.collective.expected);
      }
    }
  }
  CHECK(wrong > 0);
}

}  // namespace slots_loss_test
