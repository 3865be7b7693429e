// The rules of a worker's slots one by one: what is answered, repeated and refused, and when.
#include <doctest/doctest.h>

#include "proto/slots/worker.hpp"
#include "slot_letters.hpp"

namespace slots_worker_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Microseconds;
using proto::SlotWorker;

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

DatagramHeader result_of(std::uint16_t slot, std::uint64_t round, std::uint8_t present = 0,
                         DatagramKind kind = DatagramKind::result) {
  return {.kind = kind,
          .worker = 2,
          .slot = slot,
          .columns = 1,
          .present = present,
          .job = 5,
          .epoch = 6,
          .block = kBlock,
          .round = round};
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
  CHECK(bench.worker.take_ended() == std::vector<std::uint64_t>{9});
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

TEST_CASE("a block is asked for again behind its marks alone, and once") {
  std::vector<float> values(4 * kBlock, 1.0f);
  values[3] = INFINITY;
  SlotWorker worker(kPool, 1);
  auto* const memory = reinterpret_cast<std::byte*>(values.data());
  worker.begin(0, {.source = memory,
                   .out = memory,
                   .count = values.size(),
                   .arithmetic = proto::Arithmetic::fixed});
  const auto sent = [&] {
    Letter letter{Buffer(kPool.datagram_bytes)};
    letter.bytes.resize(worker.poll(letter.bytes, kStart));
    return letter;
  };
  const auto is_taken = [&](std::uint64_t round, std::uint8_t present, ColumnRecord column) {
    DatagramHeader header = result_of(0, round, present);
    header.dtype = DType::int32;
    const std::uint64_t results = worker.counters().results;
    worker.on_datagram(letter_of(header, column, 0.0f).datagram(), kStart);
    return worker.counters().results == results + 1;
  };
  CHECK(sent().column() == ColumnRecord{.next = 0, .exponent = wire::kNotFinite});
  CHECK_FALSE(is_taken(0, 0, {.next = 0, .exponent = 127}));
  CHECK(is_taken(0, 0, {.next = 0, .exponent = wire::kNotFinite}));
  sent();  // The other slot opens.
  CHECK(sent().column() == ColumnRecord{.next = 0, .exponent = 127});
  CHECK_FALSE(is_taken(1, 1, {.next = 0, .exponent = wire::kNotFinite}));
  CHECK_FALSE(is_taken(1, 1, {.next = 2, .exponent = 127}));  // leaves out the finite values
  CHECK(is_taken(1, 1, {.next = 0, .exponent = 128}));
  CHECK(sent().column() == ColumnRecord{.next = 2, .exponent = 127});
  CHECK_FALSE(is_taken(2, 1, {.next = 0, .exponent = 128}));
  CHECK(is_taken(2, 1, {.next = 2, .exponent = 127}));
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
  bench.take(result_of(0, UINT64_MAX), {.next = 2}, kStart);
  CHECK(bench.worker.counters().stale == 4);
  CHECK(bench.worker.counters().results == 1);
}

TEST_CASE("a recall of a contribution that was sent a while ago is obeyed, and not at once again") {
  Bench bench;
  CHECK(bench.sent(kStart).size() == 2);
  const DatagramHeader recall = result_of(0, UINT64_MAX, 0, DatagramKind::recall);
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
  CHECK(sent == proto::first_window(pool));
  CHECK_FALSE(worker.has_work(kStart));
  const Letter recall = letter_of(result_of(50, UINT64_MAX, 0, DatagramKind::recall), {}, 0);
  worker.on_datagram(recall.datagram(), kStart);
  CHECK(worker.has_work(kStart));
  const std::size_t size = worker.poll(memory, kStart);
  REQUIRE(size != 0);
  CHECK(wire::decode_datagram(std::span(memory).first(size))->header.slot == 50);
  CHECK(worker.counters().retransmissions == 0);
  CHECK(worker.poll(memory, kStart) == 0);
}

TEST_CASE("where nothing is answered, one contribution at a time is sent again, later and later") {
  Bench bench;
  bench.sent(kStart);
  Microseconds now = kStart;
  std::vector<std::pair<std::uint16_t, std::int64_t>> again;  // slot and milliseconds
  while (now < kStart + Microseconds{14'000'000}) {
    REQUIRE(bench.worker.next_timer());
    now = *bench.worker.next_timer();
    CHECK(bench.worker.has_work(now));
    for (const Letter& letter : bench.sent(now)) {
      again.emplace_back(letter.header().slot, (now - kStart).count() / 1000);
    }
  }
  const std::vector<std::pair<std::uint16_t, std::int64_t>> expected{
      {0, 100},  {0, 200},  {0, 400},   {0, 800},  {0, 1600},
      {0, 3200}, {0, 6400}, {0, 10400}, {0, 14400}};
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
  bench.take(result_of(0, UINT64_MAX, 0, DatagramKind::recall), {}, kStart);
  CHECK(bench.sent(kStart + Microseconds{20'000'000}).empty());
  CHECK(bench.worker.take_ended().empty());
  CHECK(bench.worker.counters().stale == 1);
}

TEST_CASE("an operation without blocks here ends at once") {
  SlotWorker worker(kPool, 0);
  worker.begin(3, {.count = 0});
  worker.begin(4, {.count = kBlock, .owners = 2, .owner = 1});
  CHECK(worker.take_ended() == std::vector<std::uint64_t>{3, 4});
}

}  // namespace slots_worker_test
