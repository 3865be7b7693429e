// Whether anything comes back from an aggregator. If nothing does for a whole timeout, one
// contribution is repeated, after longer and longer pauses, and all others wait, as in TCP (RFC
// 6298).
#pragma once

#include <cstdint>

#include "base/transitions.hpp"
#include "proto/slots/pool.hpp"

namespace sparsewire::proto {

enum class SilenceState : std::uint8_t {
  talking,    // something came not long ago, or nothing is awaited
  probing,    // nothing came for a whole timeout: one contribution is to be repeated
  listening,  // it has been sent, and nothing came since
  doubting,   // something came; whether anything was lost is not known yet
};

enum class SilenceStep : std::uint8_t {
  time_out,
  probe,
  hear,
  confirm,  // something was lost
  deny,     // nothing was: some worker was just slow
};

inline constexpr Transition<SilenceState, SilenceStep> kSilenceTransitions[] = {
    {SilenceState::talking, SilenceStep::time_out, SilenceState::probing},
    {SilenceState::probing, SilenceStep::probe, SilenceState::listening},
    {SilenceState::listening, SilenceStep::time_out, SilenceState::probing},
    {SilenceState::probing, SilenceStep::hear, SilenceState::doubting},
    {SilenceState::listening, SilenceStep::hear, SilenceState::doubting},
    {SilenceState::doubting, SilenceStep::time_out, SilenceState::probing},
    {SilenceState::doubting, SilenceStep::confirm, SilenceState::talking},
    {SilenceState::doubting, SilenceStep::deny, SilenceState::talking},
};

class Silence {
 public:
  SilenceState state() const { return state_; }
  bool is_silent() const {
    return state_ == SilenceState::probing || state_ == SilenceState::listening;
  }
  bool is_doubting() const { return state_ == SilenceState::doubting; }

  // Something came, or is awaited from now on.
  void hear(Microseconds now);
  Microseconds heard() const { return heard_; }
  // When the present silence began, or the last one.
  Microseconds since() const { return since_; }

  // When it is time for a probe, if nothing comes.
  Microseconds due(Microseconds timeout) const;
  void time_out(Microseconds now, Microseconds timeout);
  void on_sent(Microseconds now);

  void confirm();
  void deny();

 private:
  void move(SilenceStep step) { state_ = next_state(kSilenceTransitions, state_, step); }

  SilenceState state_ = SilenceState::talking;
  Microseconds heard_{0};
  Microseconds since_{0};
  Microseconds pause_{0};  // from one probe to the next
  Microseconds next_{0};
};

}  // namespace sparsewire::proto
