// Slots whose results do not come: a worker that is frozen amid an operation, datagrams that do not
// pass, and what windows make of it. In virtual time, on links of 500 Mbit/s.
#include <doctest/doctest.h>

#include "slot_letters.hpp"
#include "slot_operations.hpp"
#include "state_tables.hpp"

namespace slots_silence_test {

using namespace sparsewire;
using namespace sparsewire::test;
using namespace std::chrono_literals;
using proto::Microseconds;
using proto::Silence;
using proto::SilenceState;
using proto::SilenceStep;
using proto::SlotWorker;

constexpr std::size_t kElements = 256;
constexpr double kBytesPerSecond = 500e6 / 8;

NetworkShape shape_of(std::uint16_t workers) {
  return {.pool = {.slots = 128, .workers = workers},
          .lags = std::vector<Nanoseconds>(workers, 20us)};
}

SlotOperation operation_of(const proto::SlotPool& pool, std::size_t blocks) {
  Random random(1);
  const std::size_t count = kElements * blocks;
  std::vector<Buffer> inputs;
  for (std::size_t rank = 0; rank < pool.workers; ++rank) {
    inputs.push_back(Buffer(4 * count, std::byte{static_cast<unsigned char>(1 + rank)}));
  }
  return test::operation_of(pool, {DType::int32, ReduceOp::sum, count}, proto::Arithmetic::exact,
                            std::move(inputs), random);
}

// What all workers send to the aggregator from 2 to 5 s on, as a share of a link.
template <typename Network>
double share_of_link(Network& network) {
  network.run(2s);
  const std::uint64_t before = network.counts().bytes_up;
  network.run(3s);
  const auto sent = static_cast<double>(network.counts().bytes_up - before);
  MESSAGE(sent << " bytes in 3 s");
  return sent / (3 * kBytesPerSecond);
}

// --- The network ---

TEST_CASE("one worker that is frozen: the others are quiet, and go on when it does") {
  for (const std::uint16_t workers : {8, 64}) {
    CAPTURE(workers);
    SlotNetwork<> network(shape_of(workers), 1);
    SlotOperation operation = operation_of({.workers = workers}, 1000);
    begin_everywhere(network, workers, operation, 0);
    network.run(5ms);
    network.freeze(3);
    REQUIRE(network.ends(0, 0) == 0);
    CHECK(share_of_link(network) < 0.01);
    network.run(25s);
    network.thaw(3);
    const Nanoseconds thawed = network.time().now();
    network.run();
    check_result(network, operation, 0, 1);
    CHECK(network.ended_at(0) - thawed < 1s);
  }
}

TEST_CASE("datagrams that do not pass: all are quiet, and go on when they do") {
  constexpr std::uint16_t kWorkers = 8;
  SlotNetwork<> network(shape_of(kWorkers), 1);
  SlotOperation operation = operation_of({.workers = kWorkers}, 1000);
  begin_everywhere(network, kWorkers, operation, 0);
  network.run(5ms);
  network.set_faults({.loss = 1});
  CHECK(share_of_link(network) < 0.01);
  network.set_faults({});
  const Nanoseconds mended = network.time().now();
  network.run();
  check_result(network, operation, 0, 1);
  CHECK(network.ended_at(0) - mended < 6s);
}

// Links are so slow that nothing leaves the queue in a while.
TEST_CASE("what all workers send first fits into the aggregator's receive buffer") {
  constexpr std::size_t kBuffer = 425'984;  // what Linux makes of 208 KiB
  constexpr std::size_t kTrueBytes = 2304;  // it counts for a datagram of 1472
  for (const std::uint16_t workers : {1, 2, 8, 16, 64, 128}) {
    CAPTURE(workers);
    SlotNetwork<> network(shape_of(workers), 1);
    SlotOperation operation = operation_of({.workers = workers}, 128);
    begin_everywhere(network, workers, operation, 0);
    network.run(30us);
    CHECK(network.counts().datagrams >= workers);
    CHECK(network.counts().datagrams * kTrueBytes <= kBuffer);
    CHECK(network.counts().datagrams <= 10 * workers);
  }
  const proto::SlotPool jumbo{.workers = 8, .datagram_bytes = 8972};
  CHECK(8 * first_window(jumbo) * 10'000 <= kBuffer);
}

// --- One worker ---

constexpr Microseconds kStart{1'000'000};
constexpr Microseconds kRoundTrip{200};

// Worker 1 of 3, with an operation of many rounds on each of its slots.
class Bench {
  static constexpr std::uint16_t kSlots = 64;
  static constexpr std::uint64_t kRounds = 100;

 public:
  Bench() { begin(); }

  void begin() {
    worker.begin(operations_, {.source = reinterpret_cast<const std::byte*>(values.data()),
                               .out = reinterpret_cast<std::byte*>(values.data()),
                               .count = values.size()});
    std::copy_n(rounds_, kSlots, first_rounds_);
    ++operations_;
  }

  // Round by round, to the end of the operation.
  void end() {
    for (std::uint16_t slot = 0; slot < kSlots; ++slot) {
      while (rounds_[slot] < first_rounds_[slot] + kRounds + 1) {
        take(slot, 2);
        sent();
      }
    }
    REQUIRE_FALSE(worker.is_busy());
  }

  // The slots of what it sends.
  std::vector<std::uint16_t> sent() {
    std::vector<std::uint16_t> slots;
    Buffer memory(pool_.datagram_bytes);
    while (const std::size_t size = worker.poll(memory, now)) {
      slots.push_back(wire::decode_datagram(std::span(memory).first(size))->header.slot);
    }
    return slots;
  }

  void take(std::uint16_t slot, std::uint16_t last, DatagramKind kind = DatagramKind::result) {
    const std::uint64_t round = kind == DatagramKind::recall ? rounds_[slot] - 1 : rounds_[slot]++;
    const std::uint64_t behind = round - first_rounds_[slot];
    const std::uint32_t next =
        behind < kRounds ? static_cast<std::uint32_t>(slot + behind * kSlots) : wire::kNoBlock;
    const Letter letter = letter_of({.kind = kind,
                                     .worker = last,
                                     .slot = slot,
                                     .columns = 1,
                                     .present = static_cast<std::uint8_t>(behind != 0),
                                     .job = pool_.job,
                                     .epoch = pool_.epoch,
                                     .block = kBlock,
                                     .round = round},
                                    {.next = next}, 1.0f);
    worker.on_datagram(letter.datagram(), now);
  }

  // A round trip after it has sent, so often: results of all that is on its way.
  void pass_rounds(int count) {
    auto flying = sent();
    for (int i = 0; i < count; ++i) {
      now += kRoundTrip;
      for (const std::uint16_t slot : flying) take(slot, 2);
      flying = sent();
    }
  }

  // What it sends by itself, as soon as a timer runs out.
  std::vector<std::uint16_t> repeated() {
    std::vector<std::uint16_t> slots;
    for (int i = 0; i < 10 && slots.empty(); ++i) {
      REQUIRE(worker.next_timer());
      now = std::max(now, *worker.next_timer());
      slots = sent();
    }
    return slots;
  }
  std::uint32_t window() const { return worker.counters().window; }

 private:
  const proto::SlotPool pool_ = [] {
    proto::SlotPool pool = kPool;
    pool.slots = kSlots;
    return pool;
  }();
  std::uint64_t rounds_[kSlots] = {};
  std::uint64_t first_rounds_[kSlots] = {};  // of the operation
  std::uint64_t operations_ = 0;

 public:
  std::vector<float> values = std::vector<float>(kSlots * kRounds * kBlock, 1.0f);
  SlotWorker worker{pool_, 1};
  Microseconds now = kStart;
};

TEST_CASE("a timeout shrinks the window, and repeats one contribution, later and later") {
  Bench bench;
  bench.pass_rounds(6);
  REQUIRE(bench.window() == 64);
  std::vector<std::int64_t> pauses;  // in timeouts
  Microseconds last = bench.now;
  for (int i = 0; i < 6; ++i) {
    REQUIRE(bench.repeated().size() == 1);
    pauses.push_back((bench.now - last) / Microseconds{2000});
    last = bench.now;
  }
  CHECK(pauses == std::vector<std::int64_t>{1, 1, 2, 4, 8, 16});
  CHECK(bench.window() == 4);
}

TEST_CASE("a false alarm leaves the window as it was, and nothing is repeated for it") {
  Bench bench;
  bench.pass_rounds(6);
  const auto probe = bench.repeated();
  REQUIRE(probe.size() == 1);
  CHECK(bench.window() == 4);
  for (int i = 0; i < 70; ++i) REQUIRE(bench.repeated() == probe);
  const std::uint64_t repeated = bench.worker.counters().retransmissions;
  for (std::uint16_t slot = 0; slot < 64; ++slot) {
    if (slot != probe[0]) bench.take(slot, 2);
  }
  CHECK(bench.window() == 64);
  CHECK(bench.sent().size() == 63);
  CHECK(bench.worker.counters().retransmissions == repeated);
}

TEST_CASE("after a silence what was lost goes out under a small window") {
  Bench bench;
  bench.pass_rounds(6);
  const auto probe = bench.repeated();
  REQUIRE(probe.size() == 1);
  bench.now += 1s;
  bench.take(probe[0], 1);  // Its own was missing.
  CHECK(bench.window() <= 6);
  CHECK(bench.sent().size() <= 6);
}

TEST_CASE("a result that was lost and comes again shrinks the window, whoever was last") {
  Bench bench;
  bench.pass_rounds(6);
  REQUIRE(bench.window() == 64);
  bench.now += kRoundTrip;
  for (std::uint16_t slot = 1; slot < 64; ++slot) bench.take(slot, 2);
  for (int i = 0; i < 100 && bench.worker.counters().timeouts == 0; ++i) {
    for (std::uint16_t slot = 1; slot < 64; ++slot) {
      bench.take(slot, 2);
      bench.sent();
    }
    bench.now += kRoundTrip;
  }
  bench.take(0, 2);
  CHECK(bench.worker.counters().retransmissions == 1);
  CHECK(bench.window() < 64);
}

TEST_CASE("after a pause the window begins small") {
  Bench bench;
  bench.pass_rounds(6);
  bench.now += kRoundTrip;
  REQUIRE(bench.window() == 64);
  bench.end();
  bench.now += 1s;
  bench.begin();
  CHECK(bench.sent().size() == 10);
  CHECK(bench.window() == 10);
}

// --- Paths that change ---

// A window of results, a round trip after they were asked for.
void pass_round(proto::CongestionWindow& window, Microseconds& now, Microseconds round_trip) {
  now += round_trip;
  for (std::size_t i = window.size(); i != 0; --i) {
    window.on_sample(round_trip, now);
    window.on_result(now);
  }
}

TEST_CASE("a route that becomes three times as long does not stop growth for good") {
  proto::CongestionWindow window(1024, 10);
  Microseconds now{0};
  window.on_loss(now, now);
  for (int i = 0; i < 60; ++i) pass_round(window, now, Microseconds{1000});
  REQUIRE(window.size() < 200);
  for (int i = 0; i < 30'000; ++i) pass_round(window, now, Microseconds{3000});
  CHECK(window.size() == 1024);
}

// --- States ---

Silence silence_in(SilenceState state) {
  Silence silence;
  if (state == SilenceState::talking) return silence;
  silence.time_out(kStart, Microseconds{1000});
  if (state == SilenceState::probing) return silence;
  silence.on_sent(kStart);
  if (state == SilenceState::listening) return silence;
  silence.hear(kStart);
  return silence;
}

void step(Silence& silence, SilenceStep event) {
  switch (event) {
    case SilenceStep::time_out:
      return silence.time_out(kStart, Microseconds{1000});
    case SilenceStep::probe:
      return silence.on_sent(kStart);
    case SilenceStep::hear:
      return silence.hear(kStart);
    case SilenceStep::confirm:
      return silence.confirm();
    case SilenceStep::deny:
      return silence.deny();
  }
}

TEST_CASE("a silence goes through its states as the table says") {
  for_each_row(proto::kSilenceTransitions,
               [](SilenceState from, SilenceStep event, SilenceState to) {
                 Silence silence = silence_in(from);
                 REQUIRE(silence.state() == from);
                 step(silence, event);
                 CHECK(silence.state() == to);
               });
  check_refuses_the_rest(proto::kSilenceTransitions,
                         {SilenceState::talking, SilenceState::probing, SilenceState::listening,
                          SilenceState::doubting},
                         {SilenceStep::time_out, SilenceStep::probe, SilenceStep::hear,
                          SilenceStep::confirm, SilenceStep::deny});
}

}  // namespace slots_silence_test
