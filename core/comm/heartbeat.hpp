// What lanes and aggregators share to tell and to hear that the other end of a link is alive.
#pragma once

#include "comm/progress_thread.hpp"
#include "proto/liveness/pulse.hpp"
#include "wire/topology.hpp"

namespace sparsewire::comm {

inline proto::Milliseconds patience_of(const wire::Topology& topology) {
  return proto::Milliseconds{topology.peer_timeout_ms};
}

inline proto::Milliseconds milliseconds_of(Clock::time_point now) {
  return std::chrono::duration_cast<proto::Milliseconds>(now.time_since_epoch());
}

// Says that this end is alive, where it has said nothing else of late. What is queued would get
// there first.
inline void beat(net::Connection& connection, proto::Pulse& pulse) {
  const bool owes = pulse.owes_beat(connection.bytes_sent());
  if (owes && !connection.has_output()) {
    connection.send({{.kind = wire::FrameKind::heartbeat}, {}});
  }
}

inline std::string describe_silence(proto::Milliseconds silence) {
  const auto tenths = silence.count() / 100;
  return "no sign of life for " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         " s";
}

// A peer from which nothing comes, or that was heard again.
struct Silence {
  std::string peer;  // "rank 2", or "aggregator 10.0.0.9:5000"
  Rank rank;         // kNoRank for an aggregator
  proto::Milliseconds lasted;
  bool is_over;
};

}  // namespace sparsewire::comm
