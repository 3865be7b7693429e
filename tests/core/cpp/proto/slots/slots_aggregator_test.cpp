// The rules of an aggregator's slots one by one: what is taken, repeated, recalled and refused.
#include <doctest/doctest.h>

#include <optional>

#include "proto/slots/aggregator.hpp"
#include "slot_letters.hpp"
#include "slot_wrapping.hpp"
#include "state_tables.hpp"

namespace slots_aggregator_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::RoundState;
using proto::RoundStep;
using proto::SlotAggregator;

DatagramHeader contribution_of(std::uint16_t worker, std::uint64_t round) {
  return {.kind = DatagramKind::contribution,
          .worker = worker,
          .slot = 1,
          .columns = 1,
          .job = 5,
          .epoch = 6,
          .block = kBlock,
          .round = round};
}

struct Answer {
  std::uint16_t worker;
  Letter letter;
};

class Desk {
 public:
  explicit Desk(std::uint64_t first = 0) : aggregator(first, kPool) {}

  std::vector<Answer> take(const Letter& letter) {
    std::vector<SlotAggregator::Outgoing> out;
    const wire::Datagram datagram = letter.datagram();
    aggregator.on_datagram(datagram, out);
    std::vector<Answer> answers;
    for (const auto& [worker, bytes] : out) {
      answers.push_back({worker, {Buffer(bytes.begin(), bytes.end())}});
    }
    return answers;
  }
  std::vector<Answer> take(std::uint16_t worker, std::uint64_t round, ColumnRecord column = {},
                           std::optional<float> value = {}) {
    DatagramHeader header = contribution_of(worker, round);
    header.present = value.has_value();
    return take(letter_of(header, column, value.value_or(0)));
  }

  LateAggregator aggregator;
};

TEST_CASE("a round is complete when every worker has contributed, with the least next block") {
  Desk desk;
  CHECK(desk.take(2, 0, {.next = 7, .exponent = 3}).empty());
  CHECK(desk.take(0, 0, {.next = 3, .exponent = 9}).empty());
  const auto answers = desk.take(1, 0, {.next = 3, .exponent = 11});
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].worker == proto::kEveryWorker);
  const DatagramHeader header = answers[0].letter.header();
  CHECK(header.kind == DatagramKind::result);
  CHECK(header.worker == 1);
  CHECK(header.slot == 1);
  CHECK(header.round == 0);
  CHECK(header.present == 0);
  CHECK((answers[0].letter.column() == ColumnRecord{.next = 3, .exponent = 11}));

  desk.take(0, 1, {}, 1.5f);
  desk.take(1, 1, {}, 2.0f);
  const auto sums = desk.take(2, 1, {.next = 7});
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].letter.header().present == 1);
  CHECK(sums[0].letter.value() == 3.5f);
  CHECK(sums[0].letter.column().next == 7);
  CHECK(desk.aggregator.counters().results == 2);
  CHECK(desk.aggregator.counters().contributions == 6);
}

TEST_CASE("a duplicate of a complete round gets its result again") {
  Desk desk;
  for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, 0, {.next = worker});
  for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, 1, {}, 2.0f);
  const auto answers = desk.take(1, 1, {}, 2.0f);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].worker == 1);
  CHECK(answers[0].letter.header().kind == DatagramKind::result);
  CHECK(answers[0].letter.value() == 6.0f);
  desk.take(0, 2);
  const auto older = desk.take(1, 1, {}, 2.0f);  // While the next round is being added up.
  REQUIRE(older.size() == 1);
  CHECK(older[0].letter.value() == 6.0f);
  CHECK(desk.aggregator.counters().resent == 2);
  CHECK(desk.aggregator.counters().duplicates == 2);
}

TEST_CASE("a duplicate of an incomplete round recalls those who are late") {
  Desk desk;
  for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, 0, {.next = 4});
  desk.take(1, 1, {}, 2.0f);
  const auto answers = desk.take(1, 1, {}, 2.0f);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].worker == 0);
  CHECK(answers[1].worker == 2);
  for (const Answer& answer : answers) {
    CHECK(answer.letter.header().kind == DatagramKind::recall);
    CHECK(answer.letter.header().round == 0);
    CHECK(answer.letter.column().next == 4);
  }
  // It was not added twice, and later results are results.
  desk.take(0, 1, {}, 1.0f);
  const auto sums = desk.take(2, 1, {}, 1.0f);
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].letter.header().kind == DatagramKind::result);
  CHECK(sums[0].letter.value() == 4.0f);
  CHECK(desk.aggregator.counters().recalls == 2);
}

TEST_CASE("before the first result, a recall is of no round") {
  Desk desk;
  desk.take(1, 0, {.next = 4});
  const auto answers = desk.take(1, 0, {.next = 4});
  REQUIRE(answers.size() == 2);
  const DatagramHeader header = answers[0].letter.header();
  CHECK(header.kind == DatagramKind::recall);
  CHECK(header.round == UINT64_MAX);
  CHECK(header.columns == 1);
  CHECK(header.present == 0);
  CHECK(header.block == kBlock);
}

TEST_CASE("what is of no round that is on is stale") {
  Desk desk;
  CHECK(desk.take(0, 1).empty());
  CHECK(desk.take(0, 2).empty());
  CHECK(desk.take(0, UINT64_MAX - 2).empty());
  CHECK(desk.aggregator.counters().stale == 3);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, round);
  }
  CHECK(desk.aggregator.counters().results == 3);
  CHECK(desk.take(0, 0).empty());
  CHECK(desk.take(0, 4).empty());
  CHECK(desk.take(0, 5).empty());
  desk.take(0, 3);
  CHECK(desk.take(1, 4).empty());  // The one before is not complete.
  CHECK(desk.aggregator.counters().stale == 7);
  CHECK(desk.take(0, UINT64_MAX).empty());
  CHECK(desk.take(0, 3 - 2 * 2).empty());
}

TEST_CASE("a contribution that was recorded 2^32 rounds ago is stale") {
  Desk desk(kAlmostWrapped);
  const Letter recorded = letter_of(contribution_of(0, 2), {}, 1.0f);
  constexpr std::uint64_t kAgain = (1ull << 32) + 2;
  for (std::uint64_t round = kAlmostWrapped; round < kAgain; ++round) {
    for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, round);
  }
  CHECK(desk.aggregator.counters().results == kAgain - kAlmostWrapped);
  CHECK(desk.take(recorded).empty());
  CHECK(desk.aggregator.counters().stale == 1);
  desk.take(1, kAgain, {}, 2.0f);
  desk.take(2, kAgain, {}, 2.0f);
  CHECK(desk.take(recorded).empty());
  const auto sums = desk.take(0, kAgain, {}, 2.0f);
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].letter.value() == 6.0f);
  CHECK(desk.aggregator.counters().stale == 2);
}

TEST_CASE("a duplicate of a round that never was has no answer") {
  Desk desk;
  CHECK(desk.take(0, UINT64_MAX).empty());
  CHECK(desk.take(0, UINT64_MAX - 1).empty());
  CHECK(desk.aggregator.counters().results == 0);
}

TEST_CASE("an aggregator takes only what is its job's, and fits") {
  Desk desk;
  const auto is_rejected = [&](auto change) {
    DatagramHeader header = contribution_of(0, 0);
    change(header);
    const std::uint64_t before = desk.aggregator.counters().rejected;
    CHECK(desk.take(letter_of(header, {}, 0)).empty());
    return desk.aggregator.counters().rejected == before + 1;
  };
  CHECK(is_rejected([](auto& header) { header.job = 4; }));
  CHECK(is_rejected([](auto& header) { header.epoch = 5; }));
  CHECK(is_rejected([](auto& header) { header.slot = 2; }));
  CHECK(is_rejected([](auto& header) { header.worker = 3; }));
  CHECK(is_rejected([](auto& header) { header.worker = proto::kEveryWorker; }));
  CHECK(is_rejected([](auto& header) { header.kind = DatagramKind::result; }));
  CHECK(is_rejected([](auto& header) { header.kind = DatagramKind::recall; }));
  CHECK(is_rejected([](auto& header) { header.block = 32; }));
  CHECK(is_rejected([](auto& header) { header.columns = 2; }));
  CHECK(is_rejected([](auto& header) { header.dtype = DType::float64; }));
  CHECK_FALSE(is_rejected([](auto&) {}));
  // The others are as the first.
  CHECK(is_rejected([](auto& header) { header.worker = 1, header.dtype = DType::int32; }));
  CHECK(is_rejected([](auto& header) { header.worker = 1, header.op = ReduceOp::max; }));
  CHECK_FALSE(is_rejected([](auto& header) { header.worker = 1; }));
}

TEST_CASE("memory is what was announced") {
  const SlotPool pool{.slots = 128, .workers = 8};
  CHECK(SlotAggregator(pool).memory() == SlotAggregator::memory_needed(pool));
  CHECK(SlotAggregator::memory_needed(pool) < 2'000'000);
}

TEST_CASE("rounds go through their states as the table says") {
  check_refuses_the_rest(
      proto::kRoundTransitions,
      {RoundState::blank, RoundState::adding, RoundState::waiting, RoundState::complete},
      {RoundStep::start, RoundStep::pass, RoundStep::finish});
}

}  // namespace slots_aggregator_test
