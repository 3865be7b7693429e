// Whether datagrams still pass, as a worker judges it: in virtual time, with directions that are
// cut, ranks that are late, and paths that became narrow.
#include <doctest/doctest.h>

#include <deque>

#include "proto/slots/aggregator.hpp"
#include "proto/slots/path.hpp"
#include "proto/slots/worker.hpp"
#include "slot_letters.hpp"
#include "state_tables.hpp"
#include "wire/greeting.hpp"

namespace slots_path_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Microseconds;
using proto::PathState;
using proto::PathStep;
using proto::SlotPath;

constexpr Microseconds kPatience{3'000'000};
constexpr Microseconds kStep{1000};
constexpr std::size_t kFull = 1472;

// --- One path ---

TEST_CASE("a path goes through its states, and through no others") {
  for_each_row(proto::kPathTransitions, [](PathState from, PathStep event, PathState to) {
    SlotPath path(kPatience, kFull, 0);
    Microseconds now{1'000'000};
    if (from != PathState::resting) path.await(true, now);
    if (from == PathState::asking) REQUIRE(path.ask(now += kPatience).has_value());
    REQUIRE(path.state() == from);
    if (event == PathStep::ask) CHECK(path.ask(now + kPatience).has_value());
    if (event == PathStep::answer) path.on_result(now);
    if (event == PathStep::await) path.await(true, now);
    if (event == PathStep::rest) path.await(false, now);
    CHECK(path.state() == to);
  });
  check_refuses_the_rest(proto::kPathTransitions,
                         {PathState::resting, PathState::trusted, PathState::asking},
                         {PathStep::await, PathStep::answer, PathStep::ask, PathStep::rest});
}

// Asks whenever it is due, and calls answer(hello, now), until it is lost or the time is up.
template <typename Answer>
Microseconds ask_until_lost(SlotPath& path, Microseconds end, Answer&& answer) {
  Microseconds now{0};
  path.await(true, now);
  while (!path.is_lost() && now < end) {
    now = *path.next_due();
    if (const auto hello = path.ask(now)) answer(*hello, now);
  }
  return now;
}

TEST_CASE("a path without answers is lost after its patience, and several greetings") {
  for (const Microseconds patience : {Microseconds{1'000'000}, kPatience, 10 * kPatience}) {
    CAPTURE(patience.count());
    SlotPath path(patience, kFull, 7);
    std::vector<SlotPath::Hello> said;
    const auto lost = ask_until_lost(
        path, 2 * patience, [&](const auto& hello, Microseconds) { said.push_back(hello); });
    CHECK(lost == patience);
    CHECK(said.size() >= 8);
    for (std::size_t i = 0; i < said.size(); ++i) {
      const bool is_short = i % 6 == 2;
      CHECK(said[i].number == 4 * (i + 2) + (is_short ? 3 : i % 6 == 5 ? 2 : 0));
      CHECK(said[i].bytes == (is_short ? wire::kMinDatagram : kFull));
    }
  }
}

TEST_CASE("greetings that are answered keep a path, however late results are") {
  SlotPath path(kPatience, kFull, 0);
  ask_until_lost(path, 100 * kPatience, [&](const SlotPath::Hello& hello, Microseconds now) {
    path.on_welcome(hello.number, hello.bytes, now);
  });
  CHECK_FALSE(path.is_lost());
}

TEST_CASE("short datagrams alone do not keep a path, and tell that it is narrow") {
  SlotPath path(kPatience, kFull, 0);
  const auto lost =
      ask_until_lost(path, 2 * kPatience, [&](const SlotPath::Hello& hello, Microseconds now) {
        if (hello.bytes < kFull) path.on_welcome(hello.number, hello.bytes, now);
      });
  CHECK(lost == kPatience);
  CHECK(path.is_narrow());
}

TEST_CASE("answers to what was not said, or was answered before, keep no path") {
  SlotPath path(kPatience, kFull, 4);
  std::uint64_t first = 0;
  const auto lost =
      ask_until_lost(path, 2 * kPatience, [&](const SlotPath::Hello& hello, Microseconds now) {
        if (first == 0) path.on_welcome(first = hello.number, kFull, now);
        path.on_welcome(4, kFull, now);
        path.on_welcome(first, kFull, now);
        path.on_welcome(hello.number + 4, kFull, now);
      });
  CHECK(lost > kPatience);
  CHECK(lost < 2 * kPatience);
}

// What is redirected gets lost: those to the programs are answered by nobody who is heard.
TEST_CASE(
    "a process that hears greetings is no way for the results of its kernel, and no narrow one") {
  for (const bool has_programs : {true, false}) {
    CAPTURE(has_programs);
    SlotPath path(kPatience, kFull, 0);
    const auto lost =
        ask_until_lost(path, 2 * kPatience, [&](const SlotPath::Hello& hello, Microseconds) {
          const bool is_of_kernel = hello.number % wire::kProbes == wire::kFullProbe;
          if (!has_programs || !is_of_kernel) path.on_noted(hello.number, hello.bytes);
        });
    CHECK(lost == kPatience);
    CHECK(path.is_noted());
    CHECK_FALSE(path.is_narrow());
  }
}

TEST_CASE("where all greetings are as short as the shortest, nothing tells a narrow path") {
  for (const std::size_t full : {std::size_t{560}, std::size_t{576}}) {
    SlotPath path(kPatience, full, 0);
    ask_until_lost(path, 2 * kPatience, [&](const SlotPath::Hello& hello, Microseconds) {
      CHECK(hello.bytes == full);
      CHECK(hello.number % wire::kProbes != wire::kNarrowProbe);
    });
    CHECK_FALSE(path.is_narrow());
  }
}

TEST_CASE("time in which a worker did not run counts as one pause") {
  SlotPath path(kPatience, kFull, 0);
  path.await(true, Microseconds{0});
  REQUIRE(path.ask(Microseconds{250'000}).has_value());
  REQUIRE(path.ask(100 * kPatience).has_value());
  CHECK_FALSE(path.is_lost());
}

TEST_CASE("a lost path is asked on, and an answer makes it good") {
  SlotPath path(kPatience, kFull, 0);
  Microseconds now = ask_until_lost(path, 2 * kPatience, [](const auto&, Microseconds) {});
  REQUIRE(path.is_lost());
  std::optional<SlotPath::Hello> hello;
  while (!hello || hello->bytes < kFull) hello = path.ask(now = *path.next_due());
  path.on_welcome(hello->number, hello->bytes, now);
  CHECK_FALSE(path.is_lost());
}

TEST_CASE("nothing is said where nothing is awaited") {
  SlotPath path(kPatience, kFull, 0);
  CHECK_FALSE(path.next_due().has_value());
  CHECK_FALSE(path.ask(kPatience).has_value());
  path.await(true, kPatience);
  path.await(false, kPatience);
  CHECK_FALSE(path.ask(2 * kPatience).has_value());
}

// --- A job ---

constexpr std::size_t kWorkers = 3;
constexpr std::size_t kRounds = 60'000;

// Workers, their paths and an aggregator, a round trip every millisecond, and one large operation.
class World {
 public:
  World() {
    for (std::size_t worker = 0; worker < kWorkers; ++worker) {
      hosts_.emplace_back(static_cast<std::uint16_t>(worker));
    }
  }

  struct Host {
    explicit Host(std::uint16_t number)
        : values(kRounds * kPool.slots * kBlock, 1.0f), worker(kPool, number) {
      auto* const bytes = reinterpret_cast<std::byte*>(values.data());
      worker.begin(0, {.source = bytes, .out = bytes, .count = values.size()});
    }

    std::vector<float> values;
    proto::SlotWorker worker;
    SlotPath path{kPatience, kFull, 0};
    std::deque<Letter> inbox = {};
    bool has_up = true;
    bool has_down = true;
    bool runs = true;
    std::optional<Microseconds> lost = {};
  };

  Host& host(std::size_t worker) { return hosts_[worker]; }
  Microseconds now() const { return now_; }

  void run(Microseconds lasts) {
    for (const Microseconds end = now_ + lasts; now_ < end; now_ += kStep) {
      for (std::size_t worker = 0; worker < kWorkers; ++worker) {
        if (hosts_[worker].runs) run(worker);
      }
    }
  }

 private:
  void run(std::size_t number) {
    Host& host = hosts_[number];
    receive(host);
    host.path.await(host.worker.is_busy(), now_);
    if (const auto hello = host.path.ask(now_); hello && host.has_up && host.has_down) {
      host.path.on_welcome(hello->number, hello->bytes, now_);
    }
    if (host.path.is_lost() && !host.lost) host.lost = now_;
    Buffer memory(kPool.datagram_bytes);
    while (const std::size_t size = host.worker.poll(memory, now_)) {
      if (host.has_up) send(std::span(memory).first(size));
    }
  }

  void receive(Host& host) {
    for (; !host.inbox.empty(); host.inbox.pop_front()) {
      const std::uint64_t before = host.worker.counters().results;
      host.worker.on_datagram(host.inbox.front().datagram(), now_);
      if (host.worker.counters().results != before) host.path.on_result(now_);
    }
  }

  void send(std::span<const std::byte> bytes) {
    const auto datagram = wire::decode_datagram(bytes);
    REQUIRE(datagram);
    std::vector<proto::SlotAggregator::Outgoing> out;
    aggregator_.on_datagram(*datagram, out);
    for (const auto& outgoing : out) {
      for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
        const bool is_meant = outgoing.worker == worker || outgoing.worker == proto::kEveryWorker;
        if (!is_meant || !hosts_[worker].has_down) continue;
        hosts_[worker].inbox.push_back({{outgoing.datagram.begin(), outgoing.datagram.end()}});
      }
    }
  }

  Microseconds now_{1'000'000};
  proto::SlotAggregator aggregator_{kPool};
  std::deque<Host> hosts_;
};

struct Cut {
  const char* what;
  bool has_up, has_down;
};

TEST_CASE("where a worker's datagrams pass no more, it alone finds its path lost, in time") {
  for (const Cut& cut :
       {Cut{"up", false, true}, Cut{"down", true, false}, Cut{"both", false, false}}) {
    CAPTURE(cut.what);
    World world;
    world.run(Microseconds{1'000'000});
    world.host(1).has_up = cut.has_up;
    world.host(1).has_down = cut.has_down;
    const Microseconds since = world.now();
    world.run(4 * kPatience);
    REQUIRE(world.host(1).lost.has_value());
    CHECK(*world.host(1).lost - since <= kPatience + 10 * kStep);
    CHECK_FALSE(world.host(0).lost.has_value());
    CHECK_FALSE(world.host(2).lost.has_value());
  }
}

TEST_CASE("a worker that stands still for long is no lost path to anybody, and goes on") {
  World world;
  world.run(Microseconds{1'000'000});
  world.host(2).runs = false;
  world.run(10 * kPatience);
  world.host(2).runs = true;
  world.run(Microseconds{120'000'000});
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    CAPTURE(worker);
    CHECK_FALSE(world.host(worker).lost.has_value());
    CHECK_FALSE(world.host(worker).worker.is_busy());
    CHECK(world.host(worker).values[0] == kWorkers);
    CHECK(world.host(worker).values.back() == kWorkers);
  }
}

}  // namespace slots_path_test
