// The channels of one lane, to every other owner; counts what is sent on them.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "comm/channel.hpp"
#include "comm/lane_counters.hpp"

namespace sparsewire::comm {

class PeerChannels {
 public:
  explicit PeerChannels(LaneCounters& counters) : counters_(counters) {}

  // In the order of the owners; null for the own rank.
  void add(std::unique_ptr<Channel> channel) {
    by_owner_.push_back(channel.get());
    if (channel) channels_.push_back(std::move(channel));
  }

  // Owners, this rank among them where it is one.
  std::uint32_t owners() const { return static_cast<std::uint32_t>(by_owner_.size()); }
  Channel& of(std::uint32_t owner) const { return *by_owner_[owner]; }
  auto begin() const { return channels_.begin(); }
  auto end() const { return channels_.end(); }

  // These queue; the connections send when they are flushed.
  void send(std::uint32_t owner, wire::Message message) { send(of(owner), std::move(message)); }
  void send_to_all(const wire::Message& message) {
    for (const auto& channel : channels_) send(*channel, message);
  }

  bool is_any_readable() const {
    return any([](const auto& channel) { return channel->connection.is_readable(); });
  }
  // Whether some peer reads more slowly than this rank sends.
  bool is_any_behind() const {
    return any(
        [](const auto& channel) { return channel->connection.queued_bytes() > kMaxQueuedBytes; });
  }

 private:
  template <typename Holds>
  bool any(Holds&& holds) const {
    return std::ranges::any_of(channels_, holds);
  }
  void send(Channel& channel, wire::Message message) {
    counters_.count_sent(message.header);
    channel.connection.send(std::move(message));
  }

  LaneCounters& counters_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Channel*> by_owner_;
};

}  // namespace sparsewire::comm
