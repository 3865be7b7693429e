// What may become of one operation at an owner.
#pragma once

#include <cstdint>

#include "base/transitions.hpp"

namespace sparsewire::proto {

enum class OwnerState : std::uint8_t {
  opening,  // some rank has not opened it
  adding,   // chunks become complete, and go out as results
  failed,   // remembered until all ranks have cancelled it
};

// An operation whose last result is out is forgotten, and so is a failed one in the end.
enum class OwnerStep : std::uint8_t { open_last, fail };

inline constexpr Transition<OwnerState, OwnerStep> kOwnerTransitions[] = {
    {OwnerState::opening, OwnerStep::open_last, OwnerState::adding},
    {OwnerState::opening, OwnerStep::fail, OwnerState::failed},
    {OwnerState::adding, OwnerStep::fail, OwnerState::failed},
};

}  // namespace sparsewire::proto
