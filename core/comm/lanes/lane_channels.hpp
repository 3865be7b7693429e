// The channels of one lane: one to each peer, connected once there is something to say to it, or to
// hear from it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/transitions.hpp"
#include "comm/progress/channel.hpp"

namespace sparsewire::comm {

enum class Dial : std::uint8_t {
  absent,    // not needed yet
  dialling,  // asked for: messages wait in its connection
  connected,
  lost,  // for ever
};

enum class DialStep : std::uint8_t { ask, adopt, lose };

inline constexpr Transition<Dial, DialStep> kDialTransitions[] = {
    {Dial::absent, DialStep::ask, Dial::dialling},
    {Dial::absent, DialStep::adopt, Dial::connected},
    {Dial::dialling, DialStep::adopt, Dial::connected},
    {Dial::absent, DialStep::lose, Dial::lost},
    {Dial::dialling, DialStep::lose, Dial::lost},
    {Dial::connected, DialStep::lose, Dial::lost},
};

struct PeerChannel final : Channel {
  // `rank` is kNoRank for an aggregator.
  PeerChannel(std::uint32_t peer, Rank rank, std::shared_ptr<net::Staging> staging,
              net::Agenda& agenda)
      : Channel(rank, std::move(staging), {&agenda, peer}), peer(peer) {}

  Dial dial() const { return dial_; }
  void move(DialStep step) { dial_ = next_state(kDialTransitions, dial_, step); }

  const std::uint32_t peer;

 private:
  Dial dial_ = Dial::absent;
};

// Channels by peer. Turns visit those with something to do; all other loops visit those that were
// ever needed.
class LaneChannels {
 public:
  // Called when a peer must be connected, to send it something or to hear from it.
  using OnAsked = std::function<void(PeerChannel&)>;

  // Peers are ranks, or aggregators.
  LaneChannels(std::uint32_t peers, bool are_ranks, const MemoryShare& share, OnAsked on_asked)
      : are_ranks_(are_ranks),
        share_(share),
        staging_(std::make_shared<net::Staging>(share.staging)),
        on_asked_(std::move(on_asked)),
        agenda_(peers, {.each = kMaxQueuedBytes, .all = share.queued}),
        by_peer_(peers) {
    active_.reserve(peers);  // It may grow during a walk through it.
  }

  std::uint32_t peers() const { return static_cast<std::uint32_t>(by_peer_.size()); }

  PeerChannel& of(std::uint32_t peer) {
    auto& channel = by_peer_[peer];
    if (!channel) {
      const Rank rank = are_ranks_ ? static_cast<Rank>(peer) : kNoRank;
      channel = std::make_unique<PeerChannel>(peer, rank, staging_, agenda_);
    }
    return *channel;
  }
  Dial dial(std::uint32_t peer) const {
    return by_peer_[peer] ? by_peer_[peer]->dial() : Dial::absent;
  }

  // Has the peer connected. False if that is under way, done or of no use.
  bool ask(std::uint32_t peer) {
    if (dial(peer) != Dial::absent) return false;
    PeerChannel& channel = of(peer);
    channel.move(DialStep::ask);
    active_.push_back(&channel);
    on_asked_(channel);
    return true;
  }
  // Notes that the channel has got a connection.
  void adopt(PeerChannel& channel) {
    if (channel.dial() == Dial::absent) active_.push_back(&channel);
    channel.move(DialStep::adopt);
  }

  // Queues a message; the connection sends when it is flushed.
  void send(std::uint32_t peer, wire::Message message) {
    ask(peer);
    of(peer).connection.send(std::move(message));
  }

  // All channels that were ever needed.
  const std::vector<PeerChannel*>& active() const { return active_; }

  // Call visit(channel) for channels with something to read, or to write.
  template <typename Visit>
  void for_each_readable(Visit&& visit) {
    agenda_.to_read().for_each([&](std::size_t peer) { visit(*by_peer_[peer]); });
  }
  template <typename Visit>
  void for_each_writable(Visit&& visit) {
    agenda_.to_write().for_each([&](std::size_t peer) { visit(*by_peer_[peer]); });
  }
  bool is_any_readable() const { return !agenda_.to_read().empty(); }
  // Whether some of these peers read more slowly than this rank sends to them.
  bool is_any_behind(std::span<const std::uint32_t> peers) const {
    return agenda_.is_any_behind(peers);
  }
  const MemoryShare& share() const { return share_; }

 private:
  const bool are_ranks_;
  const MemoryShare share_;
  const std::shared_ptr<net::Staging> staging_;
  const OnAsked on_asked_;
  net::Agenda agenda_;  // Before the channels, which use it until they are destroyed.
  std::vector<std::unique_ptr<PeerChannel>> by_peer_;
  std::vector<PeerChannel*> active_;
};

}  // namespace sparsewire::comm
