// The states that a slot goes through at its worker, and the slots in each state, in the order in
// which they entered it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/transitions.hpp"

namespace sparsewire::proto {

enum class SlotState : std::uint8_t {
  idle,     // no operation has a block for it
  waiting,  // its contribution waits for room in the window
  flying,   // sent, and counted in the window
  overdue,  // sent, and taken for lost
  lost,     // its timer has run out: it waits for room in the window, before all others
  urgent,   // recalled: goes out as soon as possible, whatever the window
};
inline constexpr std::size_t kSlotStates = 6;

enum class SlotStep : std::uint8_t {
  ask,  // there is something to contribute: an operation opens, or a result asks for more
  send,
  give_up,   // later ones have overtaken it, or nothing comes at all
  trust,     // it was given up for nothing
  time_out,  // its timer ran out
  hurry,     // it is recalled
  end,       // it is done with the operation
};

inline constexpr Transition<SlotState, SlotStep> kSlotTransitions[] = {
    {SlotState::waiting, SlotStep::send, SlotState::flying},
    {SlotState::flying, SlotStep::ask, SlotState::waiting},
    {SlotState::idle, SlotStep::ask, SlotState::waiting},
    {SlotState::flying, SlotStep::end, SlotState::idle},
    {SlotState::flying, SlotStep::give_up, SlotState::overdue},
    {SlotState::flying, SlotStep::hurry, SlotState::urgent},
    {SlotState::waiting, SlotStep::hurry, SlotState::urgent},
    {SlotState::overdue, SlotStep::time_out, SlotState::lost},
    {SlotState::overdue, SlotStep::send, SlotState::flying},
    {SlotState::overdue, SlotStep::trust, SlotState::flying},
    {SlotState::overdue, SlotStep::hurry, SlotState::urgent},
    {SlotState::overdue, SlotStep::ask, SlotState::waiting},
    {SlotState::overdue, SlotStep::end, SlotState::idle},
    {SlotState::lost, SlotStep::send, SlotState::flying},
    {SlotState::lost, SlotStep::ask, SlotState::waiting},
    {SlotState::lost, SlotStep::trust, SlotState::flying},
    {SlotState::lost, SlotStep::hurry, SlotState::urgent},
    {SlotState::lost, SlotStep::end, SlotState::idle},
    {SlotState::urgent, SlotStep::send, SlotState::flying},
    {SlotState::urgent, SlotStep::ask, SlotState::waiting},
    {SlotState::urgent, SlotStep::end, SlotState::idle},
};

// Slots 0 to count - 1, all idle at first: a list for each state, through links in the slots.
class SlotStates {
 public:
  explicit SlotStates(std::uint16_t count) : places_(count) {
    for (std::uint16_t slot = 0; slot < count; ++slot) append(slot, SlotState::idle);
  }

  SlotState of(std::uint16_t slot) const { return places_[slot].state; }
  std::size_t size(SlotState state) const { return list(state).size; }
  bool has(SlotState state) const { return size(state) != 0; }

  // The slot that has been in the state for the longest time.
  std::optional<std::uint16_t> first(SlotState state) const {
    if (!has(state)) return {};
    return list(state).first;
  }

  void move(std::uint16_t slot, SlotStep step) {
    const SlotState to = next_state(kSlotTransitions, of(slot), step);
    remove(slot);
    append(slot, to);
  }

 private:
  struct Place {
    SlotState state;
    std::uint16_t before;
    std::uint16_t behind;
  };
  struct List {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    std::size_t size = 0;
  };

  List& list(SlotState state) { return lists_[static_cast<std::size_t>(state)]; }
  const List& list(SlotState state) const { return lists_[static_cast<std::size_t>(state)]; }

  void remove(std::uint16_t slot) {
    const Place place = places_[slot];
    List& list = this->list(place.state);
    const bool is_first = list.first == slot;
    const bool is_last = list.last == slot;
    if (is_first) list.first = place.behind;
    if (is_last) list.last = place.before;
    if (!is_first) places_[place.before].behind = place.behind;
    if (!is_last) places_[place.behind].before = place.before;
    --list.size;
  }

  void append(std::uint16_t slot, SlotState state) {
    List& list = this->list(state);
    if (list.size == 0)
      list.first = slot;
    else
      places_[list.last].behind = slot;
    places_[slot] = {state, list.last, slot};
    list.last = slot;
    ++list.size;
  }

  std::vector<Place> places_;
  std::array<List, kSlotStates> lists_;
};

}  // namespace sparsewire::proto
