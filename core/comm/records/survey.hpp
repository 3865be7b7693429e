// A lane's answer to a survey at one moment: the peers that its operations wait for, and the state
// of all peers. People ask for it, and the lane makes it in its own turn.
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

// Awaited ranks, or aggregators by their addresses.
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
  std::optional<proto::Milliseconds> quiet;  // since something came, if this lane listens
  std::uint64_t bytes_sent;                  // on the connection, by all groups
  std::uint64_t bytes_received;
  std::size_t queued;  // bytes that wait to be sent
};

// Datagrams to one aggregator.
struct PathSurvey {
  std::string name;                      // its address
  std::chrono::microseconds unanswered;  // time waited in vain, up to now
  std::string error;                     // of the socket, since the last result
  std::size_t receive_buffer;            // bytes that the system grants
};

struct LaneSurvey {
  std::map<std::uint64_t, Awaited> awaited;  // by operation
  std::vector<PeerSurvey> peers;
  std::vector<PathSurvey> paths;
};

}  // namespace sparsewire::comm
