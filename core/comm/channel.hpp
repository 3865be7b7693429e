// A channel: a connection of an engine's thread, whose it is, and whether its other end is alive.
#pragma once

#include <string>

#include "comm/progress_thread.hpp"
#include "proto/liveness/pulse.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {

// Results that may wait for one rank before its owner pauses; and the same at a dedicated
// aggregator, where many jobs share the memory.
inline constexpr std::size_t kMaxQueuedBytes = 8u << 20;
inline constexpr std::size_t kMaxQueuedForWorker = 2u << 20;

class Channel : public net::FrameHandler {
 public:
  Channel(Rank rank, int fd) : rank(rank), connection(fd) {}

  std::string name() const {
    return rank == kNoRank ? "aggregator " + connection.peer() : "rank " + std::to_string(rank);
  }
  bool is_silent() const { return pulse && pulse->state() == proto::Pulse::State::silent; }

  // Tells the other end why, as far as that still gets there.
  void close_with(const Error& error) {
    connection.send(wire::fault_message(wire::FrameKind::abort, error));
    (void)connection.flush();
    connection.close();
  }

  const Rank rank;  // of the other end; kNoRank for an aggregator
  net::Connection connection;
  std::optional<proto::Pulse> pulse;  // where this end listens
  bool has_left = false;              // it said goodbye
};

}  // namespace sparsewire::comm
