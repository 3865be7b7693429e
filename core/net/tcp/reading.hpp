// What a connection is in the middle of reading.
#pragma once

#include <cstdint>

#include "base/transitions.hpp"

namespace sparsewire::net {

enum class Reading : std::uint8_t {
  frames,   // whole ones, as they come
  payload,  // a large one, straight to its place
  held,     // frames are staged that this turn may not hand out any more
};

enum class ReadingStep : std::uint8_t { begin_payload, end_payload, end_turn, begin_turn };

inline constexpr Transition<Reading, ReadingStep> kReadingTransitions[] = {
    {Reading::frames, ReadingStep::begin_payload, Reading::payload},
    {Reading::payload, ReadingStep::end_payload, Reading::frames},
    {Reading::frames, ReadingStep::end_turn, Reading::held},
    {Reading::held, ReadingStep::begin_turn, Reading::frames},
};

}  // namespace sparsewire::net
