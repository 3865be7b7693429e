// Signs of life on one channel: whether the other end is alive, judged by the time when bytes last
// came from it, and when this end owes it a heartbeat. The holder of a pulse tells it the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sparsewire::proto {

// Time since some fixed moment.
using Milliseconds = std::chrono::milliseconds;

class Pulse {
 public:
  //   unheard -> alive <-> silent -> lost
  enum class State : std::uint8_t {
    unheard,  // nothing has come yet, and nothing is expected before begin()
    alive,
    silent,  // it may come back
    lost,    // it is not waited for any more
  };

  // The other end fell silent, is back or is lost, after so long without a sign.
  struct News {
    State state;
    Milliseconds silence;
  };

  // Lost after `patience` without a sign; silent after two seconds, or half of a short patience, or
  // more if there are so many peers that they beat less often.
  explicit Pulse(Milliseconds patience, std::size_t peers = 1);

  // From now on signs are expected, whatever has come before.
  void begin(Milliseconds now);

  // Looks at the number of bytes that have come so far.
  std::optional<News> listen(Milliseconds now, std::uint64_t received);

  // For how long nothing has come, as far as listen() tells; none if nothing is expected yet.
  std::optional<Milliseconds> quiet(Milliseconds now, std::uint64_t received) const;

  // Looks at the number of bytes that have left so far; true if none has left since the last call.
  bool owes_beat(std::uint64_t sent);

  // Leaves a time out of the silence, in which this end did not run itself.
  void excuse(Milliseconds asleep) { heard_ += asleep; }

  State state() const { return state_; }

 private:
  State judge(Milliseconds silence) const;

  Milliseconds patience_;
  Milliseconds noted_after_;
  Milliseconds heard_{0};
  std::uint64_t received_ = 0;
  std::uint64_t sent_ = 0;
  State state_ = State::unheard;
};

// Says when a listener looks at its pulses, and for how long it could not because it was stopped.
class Metronome {
 public:
  explicit Metronome(Milliseconds patience, std::size_t peers = 1);

  // None before the next look is due. Then the time since the last look that must be excused.
  std::optional<Milliseconds> tick(Milliseconds now);

  Milliseconds next() const { return next_; }
  Milliseconds interval() const { return interval_; }

 private:
  Milliseconds interval_;
  Milliseconds next_{0};
};

}  // namespace sparsewire::proto
