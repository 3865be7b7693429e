// Walks a table of states: each of its rows must happen, and all else is refused.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "base/transitions.hpp"

namespace sparsewire::test {

// Calls walk(from, event, to) for every row.
template <typename State, typename Event, std::size_t size, typename Walk>
void for_each_row(const Transition<State, Event> (&table)[size], Walk&& walk) {
  for (const auto& [from, event, to] : table) {
    CAPTURE(static_cast<int>(from));
    CAPTURE(static_cast<int>(event));
    walk(from, event, to);
  }
}

// Of all pairs of these states and events, the table takes those that it has and no other.
template <typename State, typename Event, std::size_t size>
void check_refuses_the_rest(const Transition<State, Event> (&table)[size],
                            std::initializer_list<State> states,
                            std::initializer_list<Event> events) {
  std::size_t allowed = 0;
  for (const State from : states) {
    for (const Event event : events) {
      const bool has_row = std::ranges::any_of(
          table, [&](const auto& row) { return row.from == from && row.event == event; });
      allowed += has_row;
      if (!has_row) CHECK_THROWS_AS(next_state(table, from, event), std::logic_error);
    }
  }
  CHECK(allowed == size);
}

}  // namespace sparsewire::test
