// The channels of one lane, by peer. Loops are over those that somebody has needed so far.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/peer_channel.hpp"

namespace sparsewire::comm {

class LaneChannels {
 public:
  // Peers are ranks, or aggregators.
  LaneChannels(std::uint32_t peers, bool are_ranks, const MemoryShare& share, FrameTaker& taker)
      : are_ranks_(are_ranks),
        share_(share),
        staging_(std::make_shared<net::Staging>(share.staging)),
        taker_(taker),
        by_peer_(peers) {
    active_.reserve(peers);  // It may grow while somebody walks through it.
  }

  std::uint32_t peers() const { return static_cast<std::uint32_t>(by_peer_.size()); }

  PeerChannel& of(std::uint32_t peer) {
    auto& channel = by_peer_[peer];
    if (!channel) {
      const Rank rank = are_ranks_ ? static_cast<Rank>(peer) : kNoRank;
      channel = std::make_unique<PeerChannel>(peer, rank, staging_, taker_);
    }
    return *channel;
  }
  Dial dial(std::uint32_t peer) const {
    return by_peer_[peer] ? by_peer_[peer]->dial() : Dial::absent;
  }

  // Has it connected, where it is not. False where that is under way, done or of no use.
  bool ask(std::uint32_t peer) {
    if (dial(peer) != Dial::absent) return false;
    PeerChannel& channel = of(peer);
    channel.move(DialStep::ask);
    active_.push_back(&channel);
    taker_.on_asked(channel);
    return true;
  }
  // Takes note of a connection that the channel has got.
  void adopt(PeerChannel& channel) {
    if (channel.dial() == Dial::absent) active_.push_back(&channel);
    channel.move(DialStep::adopt);
  }

  // Queues; the connection sends when it is flushed.
  void send(std::uint32_t peer, wire::Message message) {
    ask(peer);
    of(peer).connection.send(std::move(message));
  }

  // All that were ever asked for.
  const std::vector<PeerChannel*>& active() const { return active_; }

  bool is_any_readable() const {
    return std::ranges::any_of(
        active_, [](const PeerChannel* channel) { return channel->connection.is_readable(); });
  }
  // Whether some peer reads more slowly than this rank sends, or all of them do.
  bool is_any_behind() const {
    std::size_t total = 0;
    for (const PeerChannel* channel : active_) {
      const std::size_t queued = channel->connection.queued_bytes();
      if (queued > kMaxQueuedBytes) return true;
      total += queued;
    }
    return total > share_.queued;
  }

 private:
  const bool are_ranks_;
  const MemoryShare share_;
  const std::shared_ptr<net::Staging> staging_;
  FrameTaker& taker_;
  std::vector<std::unique_ptr<PeerChannel>> by_peer_;
  std::vector<PeerChannel*> active_;
};

}  // namespace sparsewire::comm
