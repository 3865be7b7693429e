// State machines as tables: the events that each state allows, and the state that follows.
#pragma once

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace sparsewire {

template <typename State, typename Event>
struct Transition {
  State from;
  Event event;
  State to;
};

// The state that follows from the event. An event that the table does not have is a bug.
template <typename State, typename Event, std::size_t size>
constexpr State next_state(const Transition<State, Event> (&table)[size], State from, Event event) {
  const auto* const at = std::find_if(std::begin(table), std::end(table), [&](const auto& row) {
    return row.from == from && row.event == event;
  });
  if (at == std::end(table)) throw std::logic_error("an event that the state does not allow");
  return at->to;
}

}  // namespace sparsewire
