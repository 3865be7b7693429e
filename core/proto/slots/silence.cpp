// Doubles the pauses between probes.
#include "proto/slots/silence.hpp"

#include <algorithm>

namespace sparsewire::proto {
namespace {

constexpr Microseconds kLongestRetryPause{4'000'000};

}  // namespace

void Silence::hear(Microseconds now) {
  heard_ = now;
  if (is_silent()) move(SilenceStep::hear);
}

Microseconds Silence::due(Microseconds timeout) const {
  if (state_ == SilenceState::probing) return Microseconds::max();
  return state_ == SilenceState::listening ? next_ : heard_ + timeout;
}

void Silence::time_out(Microseconds now, Microseconds timeout) {
  if (!is_silent()) {
    since_ = now;
    pause_ = timeout / 2;  // The first probe is extra, as TCP's tail loss probe (RFC 8985).
  }
  move(SilenceStep::time_out);
}

void Silence::on_sent(Microseconds now) {
  if (state_ != SilenceState::probing) return;
  pause_ = std::min(2 * pause_, kLongestRetryPause);
  next_ = now + pause_;
  move(SilenceStep::probe);
}

void Silence::confirm() {
  if (is_doubting()) move(SilenceStep::confirm);
}

void Silence::deny() { move(SilenceStep::deny); }

}  // namespace sparsewire::proto
