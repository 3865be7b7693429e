// Whether datagrams still reach an aggregator and come back. If awaited results do not come,
// another worker may just be late. So the worker greets: an aggregator answers greetings whatever
// its slots wait for, and learns from them of an address that has changed.
#pragma once

#include <cstdint>
#include <optional>

#include "base/transitions.hpp"
#include "proto/slots/pool.hpp"

namespace sparsewire::proto {

enum class PathState : std::uint8_t {
  resting,  // nothing is awaited, so nothing is known
  trusted,  // something is awaited, and an answer came not long ago
  asking,   // a greeting has not been answered
};

enum class PathStep : std::uint8_t { await, answer, ask, rest };

inline constexpr Transition<PathState, PathStep> kPathTransitions[] = {
    {PathState::trusted, PathStep::answer, PathState::trusted},
    {PathState::trusted, PathStep::ask, PathState::asking},
    {PathState::asking, PathStep::ask, PathState::asking},
    {PathState::asking, PathStep::answer, PathState::trusted},
    {PathState::trusted, PathStep::rest, PathState::resting},
    {PathState::asking, PathStep::rest, PathState::resting},
    {PathState::resting, PathStep::await, PathState::trusted},
};

class SlotPath {
 public:
  struct Hello {
    std::uint64_t number;
    std::size_t bytes;
  };

  // The path is lost after `patience` without an answer. Greetings are as long as the largest
  // datagram, so that an answer shows that such datagrams pass. Every third greeting finds out what
  // is wrong: it is short, to tell a narrow path, or for the process alone. The numbers of
  // greetings are above `greeted`.
  SlotPath(Microseconds patience, std::size_t datagram_bytes, std::uint64_t greeted);

  // Tells whether results are awaited now.
  void await(bool is_awaited, Microseconds now);

  // A result of a round to which this worker has contributed: so the contribution has arrived.
  void on_result(Microseconds now);
  // The answer to one of its greetings.
  void on_welcome(std::uint64_t number, std::size_t bytes, Microseconds now);
  // The process has heard a greeting. That says nothing of the way that its kernel's results take.
  void on_noted(std::uint64_t number, std::size_t bytes);

  // The greeting to send now, if any.
  std::optional<Hello> ask(Microseconds now);
  // When ask() may have something.
  std::optional<Microseconds> next_due() const;

  // Nothing was answered for the whole patience. Time in which this end did not run, or did not
  // ask, is not counted. Asking goes on, and an answer ends the loss.
  bool is_lost() const { return silence_ >= patience_; }
  // The process has noted greetings of full size meanwhile, so datagrams of that size pass both
  // ways.
  bool is_noted() const { return is_noted_; }
  // Only short greetings were answered.
  bool is_narrow() const { return passes_short_ && !is_noted_; }
  Microseconds silence() const { return silence_; }
  PathState state() const { return state_; }

 private:
  void move(PathStep step) { state_ = next_state(kPathTransitions, state_, step); }
  void trust(PathStep step, Microseconds now);
  bool is_answer(std::uint64_t number) const;
  Hello next_hello();

  const Microseconds patience_;
  const std::size_t datagram_bytes_;
  PathState state_ = PathState::resting;
  std::uint64_t said_;
  std::uint64_t answered_;
  std::uint32_t asked_ = 0;  // greetings since the last answer
  Microseconds silence_{0};  // time waited in vain
  Microseconds pause_{0};    // from the last greeting, or answer, to the next greeting
  Microseconds next_{0};
  bool is_noted_ = false;
  bool passes_short_ = false;
};

}  // namespace sparsewire::proto
