// Judges silence. A sign of life is any byte, so a busy channel needs no heartbeats.
#include "proto/liveness/pulse.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sparsewire::proto {
namespace {

constexpr Milliseconds kSilenceNoted{2000};

// An end that has nothing to say beats at every second look, so four beats fit into a patience.
constexpr int kLooksPerPatience = 8;
constexpr Milliseconds kLongestInterval{250};

// All peers beat to each other. So with many peers, intervals grow with their number over this.
constexpr std::int64_t kCrowd = 32;

// A thread that looks so many intervals late was stopped, or had no processor.
constexpr int kIntervalsAsleep = 4;

Milliseconds interval_of(Milliseconds patience, std::size_t peers) {
  const std::int64_t times = std::max(static_cast<std::int64_t>(peers) / kCrowd, std::int64_t{1});
  return std::min(patience / kLooksPerPatience, kLongestInterval * times);
}

}  // namespace

Pulse::Pulse(Milliseconds patience, std::size_t peers)
    : patience_(patience),
      noted_after_(
          std::min(std::max(kSilenceNoted, kLooksPerPatience * interval_of(patience, peers)),
                   patience / 2)) {}

void Pulse::begin(Milliseconds now) {
  heard_ = now;
  if (state_ == State::unheard) state_ = State::alive;
}

std::optional<Pulse::News> Pulse::listen(Milliseconds now, std::uint64_t received) {
  if (state_ == State::lost) return {};
  const Milliseconds lasted = now - heard_;
  const bool has_sign = std::exchange(received_, received) != received;
  if (has_sign) heard_ = now;
  const State before = state_;
  if (has_sign || before != State::unheard) state_ = judge(now - heard_);
  if (state_ == before || before == State::unheard) return {};
  return News{state_, lasted};
}

std::optional<Milliseconds> Pulse::quiet(Milliseconds now, std::uint64_t received) const {
  if (received != received_) return Milliseconds{0};
  if (state_ == State::unheard) return {};
  return std::max(now - heard_, Milliseconds{0});
}

Pulse::State Pulse::judge(Milliseconds silence) const {
  if (silence >= patience_) return State::lost;
  return silence >= noted_after_ ? State::silent : State::alive;
}

bool Pulse::owes_beat(std::uint64_t sent) { return std::exchange(sent_, sent) == sent; }

Metronome::Metronome(Milliseconds patience, std::size_t peers)
    : interval_(interval_of(patience, peers)) {}

std::optional<Milliseconds> Metronome::tick(Milliseconds now) {
  if (now < next_) return {};
  const bool is_first = next_ == Milliseconds{0};
  const Milliseconds late = now - std::exchange(next_, now + interval_);
  const bool was_asleep = !is_first && late > kIntervalsAsleep * interval_;
  return was_asleep ? late : Milliseconds{0};
}

}  // namespace sparsewire::proto
