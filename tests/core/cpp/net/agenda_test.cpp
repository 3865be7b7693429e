// What connections keep in an agenda: who has something to read or to write, and what waits in all.
#include "net/agenda.hpp"

#include "net/connection.hpp"
#include "pipes.hpp"
#include "random.hpp"
#include "wire/frame.hpp"

namespace agenda_test {

using namespace sparsewire;
using namespace sparsewire::test;
using net::Connection;

constexpr std::size_t kConnections = 256;
constexpr std::size_t kMost = 100'000;  // bytes, until one is behind
constexpr net::QueueLimits kLimits{.each = kMost, .all = 100 * kMost};
constexpr std::size_t kOurs = 130;
constexpr std::array<std::uint32_t, 1> kOurNumber{kOurs};

class Counter final : public net::FrameHandler {
 public:
  Status accepts(std::uint32_t, const wire::FrameHeader&) override { return {}; }
  std::byte* place(std::uint32_t, const wire::FrameHeader&) override { return nullptr; }
  bool is_ready_for(const wire::FrameHeader&) override { return is_ready; }
  Status on_message(std::uint32_t number, wire::Message) override {
    from = number;
    ++frames;
    return {};
  }

  bool is_ready = true;
  int frames = 0;
  std::uint32_t from = 0;  // the connection that the last one came on
};

wire::Message frame(std::size_t bytes) {
  const Buffer payload(bytes);
  return wire::message_of(
      {.kind = wire::FrameKind::segment, .format = wire::Format::dense, .chunk = 1, .next = 2},
      Bytes::copy_of(payload));
}

// One of many connections, and its other end.
template <typename Carrier>
struct Bench {
  net::Agenda agenda{kConnections, kLimits};
  PipePair pair = Carrier::pair();
  Connection ours{std::move(pair.a), std::make_shared<net::Staging>(), {&agenda, kOurs}};
  Connection other{std::move(pair.b)};
  Counter counter;

  bool reads() const { return agenda.to_read().contains(kOurs); }
  bool writes() const { return agenda.to_write().contains(kOurs); }
  void check_matches() const {
    CHECK(reads() == ours.is_readable());
    CHECK(agenda.queued() == ours.queued_bytes());
    CHECK(agenda.is_any_behind(kOurNumber) == (ours.queued_bytes() > kMost));
  }
};

TEST_CASE_TEMPLATE("a connection is there while it has something to do", Carrier, OverSocket,
                   OverMemory) {
  Bench<Carrier> bench;
  CHECK_FALSE(bench.reads());
  CHECK_FALSE(bench.writes());
  bench.other.send(frame(1000));
  REQUIRE_FALSE(bench.other.flush());
  bench.ours.note_ready(true, true);
  CHECK(bench.reads());
  CHECK(bench.agenda.to_read().next() == kOurs);
  while (bench.reads()) REQUIRE_FALSE(bench.ours.receive(bench.counter));
  CHECK(bench.counter.from == kOurs);
  CHECK(bench.counter.frames == 1);
  bench.check_matches();

  bench.ours.send(frame(1000));
  CHECK(bench.writes());
  bench.check_matches();
  REQUIRE_FALSE(bench.ours.flush());
  CHECK_FALSE(bench.writes());
  CHECK(bench.agenda.queued() == 0);
}

TEST_CASE_TEMPLATE("one that is full waits for room, and is behind", Carrier, OverSocket,
                   OverMemory) {
  Bench<Carrier> bench;
  for (int i = 0; i < 20; ++i) bench.ours.send(frame(100'000));
  bench.check_matches();
  REQUIRE_FALSE(bench.ours.flush());
  REQUIRE(bench.ours.has_output());
  CHECK_FALSE(bench.writes());
  CHECK(bench.agenda.is_any_behind(kOurNumber));
  while (bench.ours.has_output()) {
    bench.other.note_ready(true, true);
    while (bench.other.is_readable()) REQUIRE_FALSE(bench.other.receive(bench.counter));
    bench.ours.note_ready(true, true);
    CHECK(bench.writes());
    REQUIRE_FALSE(bench.ours.flush());
    bench.check_matches();
  }
  CHECK_FALSE(bench.agenda.is_any_behind(kOurNumber));
  bench.other.note_ready(true, true);
  while (bench.other.is_readable()) REQUIRE_FALSE(bench.other.receive(bench.counter));
  CHECK(bench.counter.frames == 20);
}

TEST_CASE_TEMPLATE("one whose first frame must wait has nothing to read until it is resumed",
                   Carrier, OverSocket, OverMemory) {
  Bench<Carrier> bench;
  bench.counter.is_ready = false;
  bench.other.send(frame(10));
  REQUIRE_FALSE(bench.other.flush());
  bench.ours.note_ready(true, true);
  REQUIRE_FALSE(bench.ours.receive(bench.counter));
  CHECK_FALSE(bench.reads());
  bench.ours.resume();
  CHECK(bench.reads());
  bench.counter.is_ready = true;
  while (bench.reads()) REQUIRE_FALSE(bench.ours.receive(bench.counter));
  CHECK(bench.counter.frames == 1);
}

TEST_CASE_TEMPLATE("what is dropped, or closed, leaves nothing behind", Carrier, OverSocket,
                   OverMemory) {
  Bench<Carrier> bench;
  for (int i = 0; i < 5; ++i) bench.ours.send(frame(50'000));
  CHECK(bench.agenda.is_any_behind(kOurNumber));
  bench.ours.drop_unsent();
  bench.check_matches();
  CHECK(bench.agenda.queued() == 0);
  for (int i = 0; i < 5; ++i) bench.ours.send(frame(50'000));
  bench.ours.note_ready(true, true);
  bench.ours.close();
  CHECK(bench.agenda.to_read().empty());
  CHECK(bench.agenda.to_write().empty());
  CHECK(bench.agenda.queued() == 0);
  CHECK_FALSE(bench.agenda.is_any_behind(kOurNumber));
}

TEST_CASE("those that stand still leave as much for the others as each of them has") {
  net::Agenda agenda(kConnections, {.each = 1000, .all = 1000});
  const auto is_behind = [&](std::uint32_t number) {
    return agenda.is_any_behind(std::array{number});
  };
  std::vector<std::size_t> filled(kConnections);
  for (std::uint32_t stuck = 0; stuck < 8; ++stuck) {
    while (!is_behind(stuck)) agenda.note_queued(stuck, ++filled[stuck]);
    CHECK(agenda.queued() <= 1000);
    CHECK_FALSE(is_behind(stuck + 1));
    CHECK(filled[stuck] == (1000 - (agenda.queued() - filled[stuck])) / 2 + 1);
  }
  CHECK_FALSE(agenda.is_any_behind(std::array{100u, 200u}));
  CHECK(agenda.is_any_behind(std::array{100u, 0u, 200u}));
  for (std::uint32_t stuck = 0; stuck < 8; ++stuck) agenda.note_queued(stuck, 0);
  CHECK(agenda.queued() == 0);
  CHECK_FALSE(is_behind(0));
}

TEST_CASE("one that has little to send is behind only where much waits on it alone") {
  net::Agenda agenda(kConnections, {.each = 100, .all = 1000});
  agenda.note_queued(7, 100);
  CHECK_FALSE(agenda.is_any_behind(std::array{7u}));
  agenda.note_queued(7, 101);
  CHECK(agenda.is_any_behind(std::array{7u}));
  CHECK_FALSE(agenda.is_any_behind(std::array{6u, 8u}));
}

TEST_CASE("what is sent before there is a pipe is to be written once there is one") {
  net::Agenda agenda(kConnections, kLimits);
  PipePair pair = OverSocket::pair();
  Connection connection(nullptr, std::make_shared<net::Staging>(), {&agenda, kOurs});
  connection.send(frame(10));
  CHECK(agenda.to_write().empty());
  CHECK(agenda.queued() != 0);
  connection.attach(std::move(pair.a));
  CHECK(agenda.to_write().next() == kOurs);
}

}  // namespace agenda_test
