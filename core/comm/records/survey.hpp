// What a lane can tell at one moment: whom its operations wait for, and how its peers are. Asked
// for by people, and taken in the lane's own turn.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "proto/liveness/pulse.hpp"

namespace sparsewire::comm {

// A peer from which nothing comes, or that was heard again.
struct Silence {
  std::string peer;  // "rank 2", or "aggregator 10.0.0.9:5000"
  Rank rank;         // kNoRank for an aggregator
  proto::Milliseconds lasted;
  bool is_over;
};

// Ranks, or aggregators by their addresses.
struct Awaited {
  std::vector<Rank> ranks;
  std::vector<std::string> aggregators = {};

  bool operator==(const Awaited&) const = default;
  std::string names() const {
    std::string text;
    for (const std::string& address : aggregators) text += (text.empty() ? "" : ", ") + address;
    return text;
  }
};

struct PeerSurvey {
  std::string name;
  Rank rank;
  bool is_connected;
  std::optional<proto::Milliseconds> quiet;  // since something came; where this lane listens
  std::uint64_t bytes_sent;                  // on the connection, of all groups
  std::uint64_t bytes_received;
  std::size_t queued;  // bytes that wait to be sent
};

// Datagrams to one aggregator.
struct PathSurvey {
  std::string name;                      // its address
  std::chrono::microseconds unanswered;  // what was waited in vain, up to now
  std::string error;                     // of the socket, since the last result
  std::size_t receive_buffer;            // bytes that the system grants
};

struct LaneSurvey {
  std::map<std::uint64_t, Awaited> awaited;  // by operation
  std::vector<PeerSurvey> peers;
  std::vector<PathSurvey> paths;
};

}  // namespace sparsewire::comm
