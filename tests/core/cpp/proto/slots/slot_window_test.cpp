// Round trips, the window and what overtakes what, each by itself.
#include <doctest/doctest.h>

#include "proto/slots/slot_states.hpp"
#include "proto/slots/window.hpp"
#include "random.hpp"
#include "state_tables.hpp"

namespace slot_window_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::CongestionWindow;
using proto::Microseconds;
using proto::Overtaking;
using proto::RoundTrip;
using proto::SlotState;
using proto::SlotStates;
using proto::SlotStep;

TEST_CASE("a round trip is smoothed as RFC 6298 says") {
  RoundTrip round_trip;
  CHECK(round_trip.timeout() == Microseconds{100'000});
  round_trip.add(Microseconds{8000}, true);
  CHECK(round_trip.smoothed() == Microseconds{8000});
  CHECK(round_trip.variation() == Microseconds{4000});
  CHECK(round_trip.timeout() == Microseconds{24'000});
  round_trip.add(Microseconds{16'000}, true);
  CHECK(round_trip.variation() == Microseconds{5000});
  CHECK(round_trip.smoothed() == Microseconds{9000});
  CHECK(round_trip.timeout() == Microseconds{29'000});
  CHECK(round_trip.timeout_of_overtaken() == Microseconds{29'000});
}

TEST_CASE("what a timer has delayed is not believed") {
  RoundTrip round_trip;
  for (int i = 0; i < 50; ++i) round_trip.add(Microseconds{200}, true);
  for (int i = 0; i < 500; ++i) round_trip.add(Microseconds{i % 8 == 0 ? 200 : 900'000}, true);
  CHECK(round_trip.smoothed() <= Microseconds{10'000});
  CHECK(round_trip.timeout() <= Microseconds{30'000});
  RoundTrip far;
  for (int i = 0; i < 50; ++i) far.add(Microseconds{i % 2 == 0 ? 100'000 : 300'000}, true);
  CHECK(far.smoothed() > Microseconds{150'000});
}

TEST_CASE("a queue that stands is believed") {
  RoundTrip round_trip;
  for (int i = 0; i < 50; ++i) round_trip.add(Microseconds{200}, true);
  for (int i = 0; i < 100; ++i) round_trip.add(Microseconds{70'000}, true);
  CHECK(round_trip.smoothed() > Microseconds{60'000});
  CHECK(round_trip.timeout() > Microseconds{65'000});
}

TEST_CASE("a timeout keeps its bounds") {
  RoundTrip fast;
  for (int i = 0; i < 50; ++i) fast.add(Microseconds{50}, true);
  CHECK(fast.timeout() == Microseconds{2000});
  CHECK(fast.timeout_of_overtaken() == Microseconds{1000});
  RoundTrip slow;
  slow.add(Microseconds{5'000'000}, true);
  CHECK(slow.timeout() == Microseconds{1'000'000});
}

// A window of results, which take so long in all, and each so long from its contribution on.
void pass_round(CongestionWindow& window, Microseconds& now, Microseconds lasts,
                Microseconds round_trip) {
  now += lasts;
  for (std::size_t i = window.size(); i != 0; --i) {
    window.on_sample(round_trip, now);
    window.on_result(now);
  }
}
void pass_round(CongestionWindow& window, Microseconds& now, Microseconds round_trip) {
  pass_round(window, now, round_trip, round_trip);
}

TEST_CASE("a window doubles each round trip until something is lost, up to the slots") {
  CongestionWindow window(128, 32);
  Microseconds now{0};
  CHECK(window.size() == 32);
  CHECK(window.has_room(31));
  CHECK_FALSE(window.has_room(32));
  pass_round(window, now, Microseconds{200});
  CHECK(window.size() == 64);
  for (int i = 0; i < 5; ++i) pass_round(window, now, Microseconds{200});
  CHECK(window.size() == 128);
  CHECK(CongestionWindow(8, 32).size() == 8);
}

TEST_CASE("a loss takes a fifth, and what was on its way then counts once") {
  CongestionWindow window(128, 32);
  Microseconds now{0};
  pass_round(window, now, Microseconds{200});
  window.on_loss(now, now + Microseconds{10});
  CHECK(window.size() == 51);
  window.on_loss(now, now + Microseconds{900});
  window.on_loss(now + Microseconds{9}, now + Microseconds{900});
  CHECK(window.size() == 51);
  window.on_loss(now + Microseconds{10}, now + Microseconds{900});
  CHECK(window.size() == 40);
  for (int i = 0; i < 100; ++i) {
    now += Microseconds{1000};
    window.on_loss(now, now);
  }
  CHECK(window.size() == 4);
}

TEST_CASE("after a loss a window grows by two a round trip") {
  CongestionWindow window(128, 32);
  Microseconds now{0};
  pass_round(window, now, Microseconds{200});
  window.on_loss(now, now);
  const std::size_t before = window.size();
  for (int i = 0; i < 10; ++i) pass_round(window, now, Microseconds{200});
  CHECK(window.size() > before + 15);
  CHECK(window.size() <= before + 20);
}

TEST_CASE("where a queue stands, a loss takes 3 of 5, and growth ends at half of the best rate") {
  CongestionWindow window(128, 32);
  Microseconds now{0};
  for (int i = 0; i < 200; ++i) pass_round(window, now, Microseconds{200});
  CHECK(window.size() == 128);
  for (int i = 0; i < 20; ++i) pass_round(window, now, Microseconds{600});
  window.on_loss(now, now);
  CHECK(window.size() == 51);
  for (int i = 0; i < 10; ++i) pass_round(window, now, Microseconds{600});
  CHECK(window.size() > 51);  // 51 in 600 us are less than half of 128 in 200 us.
  CHECK(window.size() <= 61);
  // Rates are measured over 50 of these rounds.
  for (int i = 0; i < 100; ++i) pass_round(window, now, Microseconds{200}, Microseconds{600});
  const std::size_t grown = window.size();
  CHECK(grown >= 64);
  CHECK(grown < 128);
  for (int i = 0; i < 1000; ++i) pass_round(window, now, Microseconds{200}, Microseconds{600});
  CHECK(window.size() == grown);
}

TEST_CASE("three results of later ones overtake") {
  Overtaking overtaking;
  overtaking.on_result(7);
  overtaking.on_result(9);
  CHECK_FALSE(overtaking.has_overtaken(1));
  overtaking.on_result(4);
  CHECK(overtaking.has_overtaken(3));
  CHECK_FALSE(overtaking.has_overtaken(4));
  CHECK_FALSE(overtaking.has_overtaken(5));
  overtaking.on_result(2);
  CHECK_FALSE(overtaking.has_overtaken(4));
  overtaking.on_result(12);
  CHECK(overtaking.has_overtaken(6));
  CHECK_FALSE(overtaking.has_overtaken(8));
}

// --- States ---

// Steps that bring a slot to a state.
std::vector<SlotStep> way_to(SlotState state) {
  switch (state) {
    case SlotState::idle:
      return {};
    case SlotState::waiting:
      return {SlotStep::ask};
    case SlotState::flying:
      return {SlotStep::ask, SlotStep::send};
    case SlotState::overdue:
      return {SlotStep::ask, SlotStep::send, SlotStep::give_up};
    case SlotState::lost:
      return {SlotStep::ask, SlotStep::send, SlotStep::give_up, SlotStep::time_out};
    case SlotState::urgent:
      return {SlotStep::ask, SlotStep::hurry};
  }
  return {};
}

TEST_CASE("slots go through their states as the table says") {
  for_each_row(proto::kSlotTransitions, [](SlotState from, SlotStep step, SlotState to) {
    SlotStates states(3);
    for (const SlotStep before : way_to(from)) states.move(1, before);
    REQUIRE(states.of(1) == from);
    states.move(1, step);
    CHECK(states.of(1) == to);
    CHECK(states.of(0) == SlotState::idle);
  });
  check_refuses_the_rest(proto::kSlotTransitions,
                         {SlotState::idle, SlotState::waiting, SlotState::flying,
                          SlotState::overdue, SlotState::lost, SlotState::urgent},
                         {SlotStep::ask, SlotStep::send, SlotStep::give_up, SlotStep::trust,
                          SlotStep::time_out, SlotStep::hurry, SlotStep::end});
}

// Against lists that are kept the long way.
TEST_CASE("who is in a state is known in the order of coming to it") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto count = static_cast<std::uint16_t>(1 + below(6, random));
    SlotStates states(count);
    std::vector<std::uint16_t> lists[proto::kSlotStates];
    for (std::uint16_t slot = 0; slot < count; ++slot) lists[0].push_back(slot);
    for (int i = 0; i < 200; ++i) {
      const auto slot = static_cast<std::uint16_t>(below(count, random));
      const auto& row = pick(proto::kSlotTransitions, random);
      if (states.of(slot) != row.from) continue;
      states.move(slot, row.event);
      std::erase(lists[static_cast<std::size_t>(row.from)], slot);
      lists[static_cast<std::size_t>(row.to)].push_back(slot);
      for (std::size_t state = 0; state < proto::kSlotStates; ++state) {
        const auto& list = lists[state];
        REQUIRE(states.size(static_cast<SlotState>(state)) == list.size());
        const auto first = states.first(static_cast<SlotState>(state));
        REQUIRE(first.has_value() == !list.empty());
        if (first) REQUIRE(*first == list.front());
      }
    }
  }
}

}  // namespace slot_window_test
