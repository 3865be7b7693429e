// The channels of one lane, to every other owner, and what it has sent and received on them.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "comm/channel.hpp"

namespace sparsewire::comm {

// Complete for an operation before its end is told. Bytes are those of the frames of collectives,
// with their headers: what the lane has given to its connections, and what it has taken in.
struct LaneCounters {
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> bytes_received{0};
  std::atomic<std::uint64_t> segments_sent{0};
  std::atomic<std::uint64_t> results_received{0};
  std::atomic<std::uint64_t> chunks_empty{0};

  void count_sent(const wire::FrameHeader& header) { count(bytes_sent, header); }
  void count_received(const wire::FrameHeader& header) { count(bytes_received, header); }

  // Only the lane's own thread counts, so this need not be one step.
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t count) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }

 private:
  // Greetings, last words and signs of life are no part of what a caller asked for.
  static void count(std::atomic<std::uint64_t>& bytes, const wire::FrameHeader& header) {
    if (wire::is_control(header.kind) || header.kind == wire::FrameKind::hello) return;
    add(bytes, wire::kHeaderBytes + header.payload);
  }
};

class PeerChannels {
 public:
  // Room for so many, so that none is lost on its way in.
  void reserve(std::size_t owners) {
    by_owner_.reserve(owners);
    channels_.reserve(owners);
  }
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

  LaneCounters counters;

 private:
  template <typename Holds>
  bool any(Holds&& holds) const {
    return std::ranges::any_of(channels_, holds);
  }
  void send(Channel& channel, wire::Message message) {
    counters.count_sent(message.header);
    channel.connection.send(std::move(message));
  }

  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Channel*> by_owner_;
};

}  // namespace sparsewire::comm
