// What may become of one operation at a peer.
#pragma once

#include <cstdint>

#include "base/transitions.hpp"

namespace sparsewire::proto {

enum class PeerState : std::uint8_t {
  heard,       // others have joined it or refused it; it is not issued here yet
  joining,     // issued here; how it runs depends on who has not joined yet
  streaming,   // issued here as a stream from the start: nobody may join it
  exchanging,  // its parts are on their way
  failed,      // remembered until it is dropped
};

// An operation that ends, or that is to run as a stream, is forgotten.
enum class PeerStep : std::uint8_t { submit, issue_stream, exchange, fail };

inline constexpr Transition<PeerState, PeerStep> kPeerTransitions[] = {
    {PeerState::heard, PeerStep::submit, PeerState::joining},
    {PeerState::heard, PeerStep::issue_stream, PeerState::streaming},
    {PeerState::heard, PeerStep::fail, PeerState::failed},
    {PeerState::joining, PeerStep::exchange, PeerState::exchanging},
    {PeerState::joining, PeerStep::fail, PeerState::failed},
    {PeerState::streaming, PeerStep::fail, PeerState::failed},
    {PeerState::exchanging, PeerStep::fail, PeerState::failed},
};

}  // namespace sparsewire::proto
