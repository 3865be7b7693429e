// Signs of life in virtual time: when a peer counts as silent, back or lost, and what a listener
// that was stopped itself may not blame on others.
#include "proto/liveness/pulse.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "random.hpp"

namespace pulse_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Metronome;
using proto::Milliseconds;
using proto::Pulse;
using State = proto::Pulse::State;

Milliseconds ms(std::int64_t count) { return Milliseconds{count}; }

// What a pulse has become, where that is news.
std::optional<State> heard(Pulse& pulse, std::int64_t now, std::uint64_t received) {
  const auto news = pulse.listen(ms(now), received);
  return news ? std::optional(news->state) : std::nullopt;
}

TEST_CASE("nothing is expected before the first byte") {
  Pulse pulse(ms(30'000));
  CHECK_FALSE(heard(pulse, 0, 0));
  CHECK_FALSE(heard(pulse, 1'000'000, 0));
  CHECK(pulse.state() == State::unheard);
  CHECK_FALSE(heard(pulse, 1'000'001, 1));
  CHECK(pulse.state() == State::alive);
}

TEST_CASE("silence is noted after two seconds, and a peer lost after its patience") {
  Pulse pulse(ms(30'000));
  CHECK_FALSE(heard(pulse, 1000, 32));
  CHECK_FALSE(heard(pulse, 2999, 32));
  const auto news = pulse.listen(ms(3000), 32);
  REQUIRE(news);
  CHECK(news->state == State::silent);
  CHECK(news->silence == ms(2000));
  CHECK_FALSE(heard(pulse, 30'999, 32));
  CHECK(heard(pulse, 31'000, 32) == State::lost);
  CHECK_FALSE(heard(pulse, 31'001, 64));
  CHECK(pulse.state() == State::lost);
}

TEST_CASE("a silent peer comes back with any byte") {
  Pulse pulse(ms(30'000));
  heard(pulse, 0, 1);
  CHECK(heard(pulse, 5000, 1) == State::silent);
  const auto back = pulse.listen(ms(29'000), 2);
  REQUIRE(back);
  CHECK(back->state == State::alive);
  CHECK(back->silence == ms(29'000));
  CHECK_FALSE(heard(pulse, 30'999, 2));
  CHECK(heard(pulse, 31'000, 2) == State::silent);
}

TEST_CASE("a peer that is called has to answer") {
  Pulse pulse(ms(30'000));
  pulse.begin(ms(5000));
  CHECK_FALSE(heard(pulse, 6999, 0));
  CHECK(heard(pulse, 7000, 0) == State::silent);
  CHECK(heard(pulse, 35'000, 0) == State::lost);
}

TEST_CASE("among many peers all beat less often, and silence is noted later") {
  CHECK(Metronome(ms(30'000), 63).interval() == ms(250));
  CHECK(Metronome(ms(30'000), 256).interval() == ms(2000));
  CHECK(Metronome(ms(8000), 256).interval() == ms(1000));
  Pulse pulse(ms(30'000), 128);
  CHECK_FALSE(heard(pulse, 0, 1));
  CHECK_FALSE(heard(pulse, 7999, 1));
  CHECK(heard(pulse, 8000, 1) == State::silent);
  CHECK(heard(pulse, 30'000, 1) == State::lost);
}

TEST_CASE("a short patience notes silence at its half") {
  Pulse pulse(ms(2000));
  heard(pulse, 0, 1);
  CHECK_FALSE(heard(pulse, 999, 1));
  CHECK(heard(pulse, 1000, 1) == State::silent);
  CHECK(heard(pulse, 2000, 1) == State::lost);
}

TEST_CASE("a look that comes late finds the peer lost at once") {
  Pulse pulse(ms(2000));
  heard(pulse, 0, 1);
  CHECK(heard(pulse, 9000, 1) == State::lost);
}

TEST_CASE("time in which the listener was stopped is not the peer's silence") {
  Metronome metronome(ms(2000));
  Pulse pulse(ms(2000));
  CHECK(metronome.tick(ms(10'000)) == ms(0));
  heard(pulse, 10'000, 1);
  CHECK_FALSE(metronome.tick(ms(10'100)));
  CHECK(metronome.next() == ms(10'250));
  // An hour under SIGSTOP.
  const auto asleep = metronome.tick(ms(3'610'250));
  REQUIRE(asleep);
  CHECK(*asleep == ms(3'600'000));
  pulse.excuse(*asleep);
  CHECK_FALSE(heard(pulse, 3'610'250, 1));
  CHECK(heard(pulse, 3'612'000, 1) == State::lost);
}

TEST_CASE("a beat is owed where nothing has left since the last look") {
  Pulse pulse(ms(30'000));
  CHECK(pulse.owes_beat(0));
  CHECK_FALSE(pulse.owes_beat(32));
  CHECK(pulse.owes_beat(32));
  CHECK_FALSE(pulse.owes_beat(64));
}

// Two ends with clocks that run evenly and threads that come late by up to three looks: as long as
// both live, neither is ever silent to the other, and one that freezes is lost in time.
TEST_CASE("two quiet ends keep each other alive, until one freezes") {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u, 5u}) {
    CAPTURE(seed);
    Random random(seed);
    struct End {
      Metronome metronome{Milliseconds{2000}};
      Pulse pulse{Milliseconds{2000}};
      std::uint64_t sent = 0;
      std::int64_t wakes = 0;
    };
    End ends[2];
    constexpr std::int64_t kFreeze = 60'000;
    std::int64_t lost_at = 0;
    for (std::int64_t now = 1; now < kFreeze + 10'000 && lost_at == 0; ++now) {
      for (int i = 0; i < 2; ++i) {
        End& end = ends[i];
        if (now < end.wakes || (i == 1 && now >= kFreeze)) continue;
        end.wakes = now + static_cast<std::int64_t>(below(50, random));
        const auto asleep = end.metronome.tick(ms(now));
        if (!asleep) continue;
        if (end.pulse.owes_beat(end.sent)) end.sent += 32;
        end.pulse.excuse(*asleep);
        const auto changed = heard(end.pulse, now, ends[1 - i].sent);
        if (changed == State::lost) lost_at = now;
        if (now < kFreeze) CHECK_FALSE(changed);
      }
    }
    CHECK(lost_at > kFreeze + 1000);
    CHECK(lost_at < kFreeze + 2500);
  }
}

}  // namespace pulse_test
