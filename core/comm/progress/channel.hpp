// A channel: a connection of an engine's thread, with the rank and the pulse of its other end; and
// how lanes and aggregators give signs of life and listen for those of others.
#pragma once

#include <memory>
#include <string>

#include "comm/progress/memory_share.hpp"
#include "comm/progress/progress_thread.hpp"
#include "net/connection.hpp"
#include "proto/liveness/pulse.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {

// The pipe over a connected, non-blocking socket, which it takes over unless it throws. A Unix
// socket connects processes of one host: the pipe is in shared memory, with a ring of `ring` bytes
// to the peer.
std::unique_ptr<net::Pipe> open_pipe(int fd, std::size_t ring = net::kMaxRingBytes);

struct Channel {
  Channel(Rank rank, int fd) : rank(rank), connection(open_pipe(fd)) {}
  // Not connected yet.
  Channel(Rank rank, std::shared_ptr<net::Staging> staging, net::AgendaEntry entry)
      : rank(rank), connection(nullptr, std::move(staging), entry) {}

  std::string name() const {
    return rank == kNoRank ? "aggregator " + connection.peer() : "rank " + std::to_string(rank);
  }
  bool is_silent() const { return pulse && pulse->state() == proto::Pulse::State::silent; }

  const Rank rank;  // of the other end; kNoRank for an aggregator
  net::Connection connection;
  std::optional<proto::Pulse> pulse;  // if this end listens
  // It has said goodbye in all groups here: so it owes no sign of life, and may go.
  bool is_excused = false;
};

// Sends what is queued. If the other end is gone, reads its last words, which name the cause better
// than a broken pipe does.
Status flush(net::Connection& connection, net::FrameHandler& handler);

inline proto::Milliseconds patience_of(const wire::Topology& topology) {
  return proto::Milliseconds{topology.peer_timeout_ms};
}

inline proto::Milliseconds milliseconds_of(Clock::time_point now) {
  return std::chrono::duration_cast<proto::Milliseconds>(now.time_since_epoch());
}

// If it is time for a look, sends a heartbeat on every channel on which this end has sent nothing
// of late and has nothing queued. Calls on_news(channel, news) if the other end fell silent, is
// back or is lost. Peers that are excused owe no sign. Returns whether it was time.
template <typename Channels, typename OnNews>
bool check_pulses(proto::Metronome& metronome, Clock::time_point now, const Channels& channels,
                  OnNews&& on_news) {
  const auto asleep = metronome.tick(milliseconds_of(now));
  if (!asleep) return false;
  for (const auto& channel : channels) {
    net::Connection& connection = channel->connection;
    if (!channel->pulse || connection.is_closed()) continue;
    const bool owes = channel->pulse->owes_beat(connection.bytes_sent());
    if (owes && connection.is_open() && !connection.has_output()) {
      connection.send({{.kind = wire::FrameKind::heartbeat}, {}});
    }
    channel->pulse->excuse(*asleep);
    // The peer may have sent much that this end does not read yet.
    const bool is_unread = connection.reading() == net::Reading::waiting;
    if (is_unread) channel->pulse->begin(milliseconds_of(now));
    if (channel->is_excused || is_unread) continue;
    const auto news = channel->pulse->listen(milliseconds_of(now), connection.bytes_received());
    if (news) on_news(*channel, *news);
  }
  return true;
}

inline std::string describe_silence(proto::Milliseconds silence) {
  const auto tenths = silence.count() / 100;
  return "no sign of life for " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         " s";
}

}  // namespace sparsewire::comm
