// The rules of slots one by one: what each half takes, ignores, repeats and recalls, with datagrams
// made by hand.
#include <doctest/doctest.h>

#include "proto/slots/aggregator.hpp"
#include "proto/slots/worker.hpp"
#include "random.hpp"
#include "state_tables.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Microseconds;
using proto::RoundState;
using proto::RoundStep;
using proto::SlotAggregator;
using proto::SlotPool;
using proto::SlotWorker;
using wire::ColumnRecord;
using wire::DatagramHeader;
using wire::DatagramKind;

constexpr std::uint16_t kBlock = 16;
const SlotPool kPool{.slots = 2,
                     .workers = 3,
                     .datagram_bytes = wire::datagram_head(1) + 4 * kBlock,
                     .block = kBlock,
                     .job = 5,
                     .epoch = 6};

// A datagram and the memory in which it lies.
struct Letter {
  Buffer bytes;

  wire::Datagram datagram() const {
    auto decoded = wire::decode_datagram(bytes);
    REQUIRE(decoded);
    return *decoded;
  }
  DatagramHeader header() const { return datagram().header; }
  ColumnRecord column() const { return datagram().columns[0]; }
  float value() const { return load<float>(datagram().values.data(), 0); }
};

Letter letter_of(const DatagramHeader& header, ColumnRecord column, float value) {
  Letter letter{Buffer(wire::datagram_head(header.columns) + header.values_bytes())};
  const ColumnRecord columns[wire::kMaxColumns] = {column};
  wire::encode(header, {columns, header.columns}, letter.bytes);
  for (std::size_t i = 0; header.present != 0 && i < kBlock; ++i) {
    store(letter.bytes.data() + wire::datagram_head(header.columns), i, value);
  }
  return letter;
}

// --- Aggregator ---

DatagramHeader contribution_of(std::uint16_t worker, std::uint32_t round) {
  return {.kind = DatagramKind::contribution,
          .worker = worker,
          .slot = 1,
          .columns = 1,
          .job = 5,
          .epoch = 6,
          .round = round,
          .block = kBlock};
}

struct Answer {
  std::uint16_t worker;
  Letter letter;
};

class Desk {
 public:
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
  std::vector<Answer> take(std::uint16_t worker, std::uint32_t round, ColumnRecord column = {},
                           std::optional<float> value = {}) {
    DatagramHeader header = contribution_of(worker, round);
    header.present = value.has_value();
    return take(letter_of(header, column, value.value_or(0)));
  }

  SlotAggregator aggregator{kPool};
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
  CHECK(header.round == UINT32_MAX);
  CHECK(header.columns == 1);
  CHECK(header.present == 0);
  CHECK(header.block == kBlock);
}

TEST_CASE("what is of no round that is on is stale") {
  Desk desk;
  CHECK(desk.take(0, 1).empty());
  CHECK(desk.take(0, 2).empty());
  CHECK(desk.take(0, UINT32_MAX - 2).empty());
  CHECK(desk.aggregator.counters().stale == 3);
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint16_t worker = 0; worker < 3; ++worker) desk.take(worker, round);
  }
  CHECK(desk.aggregator.counters().results == 3);
  CHECK(desk.take(0, 0).empty());
  CHECK(desk.take(0, 4).empty());
  CHECK(desk.take(0, 5).empty());
  desk.take(0, 3);
  CHECK(desk.take(1, 4).empty());  // The one before is not complete.
  CHECK(desk.aggregator.counters().stale == 7);
  CHECK(desk.take(0, UINT32_MAX).empty());
  CHECK(desk.take(0, 3 - 2 * 2).empty());
}

TEST_CASE("a duplicate of a round that never was has no answer") {
  Desk desk;
  CHECK(desk.take(0, UINT32_MAX).empty());
  CHECK(desk.take(0, UINT32_MAX - 1).empty());
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
  check_refuses_the_rest(proto::kRoundTransitions,
                         {RoundState::blank, RoundState::adding, RoundState::complete},
                         {RoundStep::start, RoundStep::finish});
}

// --- Worker ---

constexpr Microseconds kStart{1'000'000};

// Worker 1 of 3, with one operation of 4 blocks of ones on 2 slots.
class Bench {
 public:
  explicit Bench(std::size_t blocks = 4) : values(blocks * kBlock, 1.0f) {
    worker.begin(9, {.source = reinterpret_cast<const std::byte*>(values.data()),
                     .out = reinterpret_cast<std::byte*>(values.data()),
                     .count = values.size()});
  }

  std::vector<Letter> sent(Microseconds now) {
    std::vector<Letter> letters;
    Buffer memory(kPool.datagram_bytes);
    while (const std::size_t size = worker.poll(memory, now)) {
      letters.push_back(
          {Buffer(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(size))});
    }
    return letters;
  }

  void take(const DatagramHeader& header, ColumnRecord column, Microseconds now) {
    const Letter letter = letter_of(header, column, 5.0f);
    const wire::Datagram datagram = letter.datagram();
    worker.on_datagram(datagram, now);
  }

  std::vector<float> values;
  SlotWorker worker{kPool, 1};
};

DatagramHeader result_of(std::uint16_t slot, std::uint32_t round, std::uint8_t present = 0,
                         DatagramKind kind = DatagramKind::result) {
  return {.kind = kind,
          .worker = 2,
          .slot = slot,
          .columns = 1,
          .present = present,
          .job = 5,
          .epoch = 6,
          .round = round,
          .block = kBlock};
}

TEST_CASE("a worker opens every slot, and answers every result") {
  Bench bench;
  const auto opening = bench.sent(kStart);
  REQUIRE(opening.size() == 2);
  CHECK(opening[0].header().present == 0);
  CHECK(opening[0].column().next == 0);
  CHECK(opening[1].column().next == 1);
  CHECK(opening[1].header().worker == 1);
  bench.take(result_of(0, 0), {.next = 0}, kStart + Microseconds{100});
  const auto first = bench.sent(kStart + Microseconds{100});
  REQUIRE(first.size() == 1);
  CHECK(first[0].header().round == 1);
  CHECK(first[0].header().present == 1);
  CHECK(first[0].value() == 1.0f);
  CHECK(first[0].column().next == 2);
  bench.take(result_of(0, 1, 1), {.next = 2}, kStart + Microseconds{200});
  CHECK(bench.values[0] == 5.0f);
  CHECK(bench.values[kBlock] == 1.0f);
  CHECK(bench.sent(kStart + Microseconds{200}).size() == 1);
  bench.take(result_of(0, 2, 1), {}, kStart + Microseconds{300});
  CHECK(bench.sent(kStart + Microseconds{300}).empty());
  CHECK(bench.worker.take_ended().empty());
  bench.take(result_of(1, 0), {.next = 1}, kStart + Microseconds{300});
  bench.sent(kStart + Microseconds{300});
  bench.take(result_of(1, 1, 1), {.next = 3}, kStart + Microseconds{400});
  bench.sent(kStart + Microseconds{400});
  bench.take(result_of(1, 2, 1), {}, kStart + Microseconds{500});
  const auto ended = bench.worker.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].seq == 9);
  CHECK_FALSE(ended[0].failure);
  CHECK_FALSE(bench.worker.next_timer());
  CHECK(bench.values == std::vector<float>(4 * kBlock, 5.0f));
  CHECK(bench.worker.counters().srtt > Microseconds{0});
}

TEST_CASE("a worker without the block acknowledges, and repeats its next one") {
  Bench bench;
  std::fill_n(bench.values.begin(), 2 * kBlock, 0.0f);  // Its first blocks are 2 and 3.
  bench.sent(kStart);
  bench.take(result_of(0, 0), {.next = 0}, kStart);
  const auto sent = bench.sent(kStart);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header().present == 0);
  CHECK(sent[0].column().next == 2);
  bench.take(result_of(0, 1, 1), {.next = 2}, kStart);
  CHECK(bench.values[0] == 5.0f);
  const auto next = bench.sent(kStart);
  REQUIRE(next.size() == 1);
  CHECK(next[0].header().present == 1);
}

TEST_CASE("results that make no sense are ignored") {
  Bench bench;
  bench.sent(kStart);
  bench.take(result_of(0, 0), {.next = 0}, kStart);
  bench.sent(kStart);
  const std::vector<float> before = bench.values;
  const auto is_rejected = [&](ColumnRecord column, auto change) {
    DatagramHeader header = result_of(0, 1, 1);
    change(header);
    const std::uint64_t rejected = bench.worker.counters().rejected;
    bench.take(header, column, kStart);
    return bench.worker.counters().rejected == rejected + 1 && bench.values == before;
  };
  const auto as_it_is = [](auto&) {};
  CHECK(is_rejected({.next = 0}, as_it_is));  // no further
  CHECK(is_rejected({.next = 1}, as_it_is));  // another slot's
  CHECK(is_rejected({.next = 4}, as_it_is));  // beyond the end, and this worker's next
  CHECK(is_rejected({}, as_it_is));           // leaves out a block that this worker has
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.present = 0; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.dtype = DType::int32; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.op = ReduceOp::max; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.block = 32; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.columns = 2; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.job = 1; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.epoch = 1; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.slot = 2; }));
  CHECK(is_rejected({.next = 2}, [](auto& header) { header.kind = DatagramKind::contribution; }));
  CHECK_FALSE(is_rejected({.next = 2}, as_it_is));
  CHECK(bench.values[0] == 5.0f);
}

TEST_CASE("no result has a block that was not asked for") {
  Bench bench;
  bench.sent(kStart);
  bench.take(result_of(0, 0, 1), {.next = 0}, kStart);
  CHECK(bench.worker.counters().rejected == 1);
  CHECK(bench.values == std::vector<float>(4 * kBlock, 1.0f));
}

TEST_CASE("results of other rounds are duplicates or stale") {
  Bench bench;
  bench.take(result_of(0, 0), {.next = 0}, kStart);  // Nothing was sent.
  CHECK(bench.worker.counters().stale == 1);
  bench.sent(kStart);
  bench.take(result_of(0, 0), {.next = 0}, kStart);
  bench.take(result_of(0, 0), {.next = 0}, kStart);
  CHECK(bench.worker.counters().duplicates == 1);
  bench.take(result_of(0, 1, 1), {.next = 2}, kStart);  // Its contribution waits.
  bench.take(result_of(0, 2), {.next = 2}, kStart);
  bench.take(result_of(0, UINT32_MAX), {.next = 2}, kStart);
  CHECK(bench.worker.counters().stale == 4);
  CHECK(bench.worker.counters().results == 1);
}

TEST_CASE("a recall of a contribution that was sent a while ago is obeyed, and not at once again") {
  Bench bench;
  CHECK(bench.sent(kStart).size() == 2);
  const DatagramHeader recall = result_of(0, UINT32_MAX, 0, DatagramKind::recall);
  bench.take(recall, {}, kStart + Microseconds{49'000});
  CHECK(bench.sent(kStart + Microseconds{49'000}).empty());
  bench.take(recall, {}, kStart + Microseconds{51'000});
  const auto again = bench.sent(kStart + Microseconds{51'000});
  REQUIRE(again.size() == 1);
  CHECK(again[0].header().slot == 0);
  CHECK(again[0].header().round == 0);
  bench.take(recall, {}, kStart + Microseconds{52'000});
  CHECK(bench.sent(kStart + Microseconds{52'000}).empty());
  CHECK(bench.worker.counters().recalls == 3);
  CHECK(bench.worker.counters().retransmissions == 1);
}

TEST_CASE("a recall brings the result that did not come") {
  Bench bench;
  bench.sent(kStart);
  bench.take(result_of(0, 0, 0, DatagramKind::recall), {.next = 0}, kStart + Microseconds{500});
  const auto sent = bench.sent(kStart + Microseconds{500});
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header().round == 1);
  CHECK(bench.worker.counters().results == 1);
  CHECK(bench.worker.counters().srtt == Microseconds{0});  // It is no measure of the round trip.
}

TEST_CASE("a recall does not wait for room in the window") {
  SlotPool pool = kPool;
  pool.slots = 64;
  std::vector<float> values(64 * kBlock, 1.0f);
  SlotWorker worker(pool, 1);
  worker.begin(0, {.source = reinterpret_cast<const std::byte*>(values.data()),
                   .out = reinterpret_cast<std::byte*>(values.data()),
                   .count = values.size()});
  Buffer memory(pool.datagram_bytes);
  std::size_t sent = 0;
  while (worker.poll(memory, kStart)) ++sent;
  CHECK(sent == worker.counters().window);
  CHECK(sent == 32);
  CHECK_FALSE(worker.has_work(kStart));
  const Letter recall = letter_of(result_of(50, UINT32_MAX, 0, DatagramKind::recall), {}, 0);
  worker.on_datagram(recall.datagram(), kStart);
  CHECK(worker.has_work(kStart));
  const std::size_t size = worker.poll(memory, kStart);
  REQUIRE(size != 0);
  CHECK(wire::decode_datagram(std::span(memory).first(size))->header.slot == 50);
  CHECK(worker.counters().retransmissions == 0);
  CHECK(worker.poll(memory, kStart) == 0);
}

TEST_CASE("what is not answered is sent again, first by one worker, and later and later") {
  Bench bench;  // Worker 1 is the first to repeat slot 1 in round 0.
  bench.sent(kStart);
  Microseconds now = kStart;
  std::vector<std::pair<std::uint16_t, std::int64_t>> again;  // slot and milliseconds
  while (now < kStart + Microseconds{3'000'000}) {
    REQUIRE(bench.worker.next_timer());
    now = *bench.worker.next_timer();
    CHECK(bench.worker.has_work(now));
    for (const Letter& letter : bench.sent(now)) {
      again.emplace_back(letter.header().slot, (now - kStart).count() / 1000);
    }
  }
  const std::vector<std::pair<std::uint16_t, std::int64_t>> expected{
      {1, 100},  {1, 300},  {0, 400},  {1, 700}, {0, 1200},
      {1, 1500}, {0, 2200}, {1, 2500}, {0, 3200}};
  CHECK(again == expected);
  CHECK(bench.worker.counters().timeouts == again.size());
}

TEST_CASE("what is dropped is neither sent nor answered") {
  Bench bench;
  bench.sent(kStart);
  bench.worker.drop_all();
  CHECK_FALSE(bench.worker.next_timer());
  CHECK_FALSE(bench.worker.has_work(kStart + Microseconds{10'000'000}));
  CHECK(bench.sent(kStart + Microseconds{10'000'000}).empty());
  bench.take(result_of(0, 0), {.next = 0}, kStart);
  bench.take(result_of(0, UINT32_MAX, 0, DatagramKind::recall), {}, kStart);
  CHECK(bench.sent(kStart + Microseconds{20'000'000}).empty());
  CHECK(bench.worker.take_ended().empty());
  CHECK(bench.worker.counters().stale == 1);
}

TEST_CASE("an operation without blocks here ends at once") {
  SlotWorker worker(kPool, 0);
  worker.begin(3, {.count = 0});
  worker.begin(4, {.count = kBlock, .owners = 2, .owner = 1});
  const auto ended = worker.take_ended();
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].seq == 3);
  CHECK(ended[1].seq == 4);
}

}  // namespace
