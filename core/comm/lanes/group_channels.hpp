// A group's view of a lane's channels: those to its members, by owner; and counters of the frames
// that it has sent and received on them.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "comm/lanes/lane_channels.hpp"
#include "comm/records/lane_log.hpp"
#include "comm/slots/lane_place.hpp"
#include "comm/slots/slot_figures.hpp"

namespace sparsewire::comm {

// Complete for an operation before its end is told. Bytes are those of the frames of collectives,
// headers included, that the lane has given to its connections or taken in.
struct LaneCounters {
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> bytes_received{0};
  std::atomic<std::uint64_t> segments_sent{0};
  std::atomic<std::uint64_t> results_received{0};
  std::atomic<std::uint64_t> chunks_empty{0};
  SlotFigures slots;

  void count_sent(const wire::FrameHeader& header) { count(bytes_sent, header); }
  void count_received(const wire::FrameHeader& header) { count(bytes_received, header); }

  // Only the thread that has the lane's turn counts, so this need not be one atomic step.
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

class GroupChannels {
 public:
  // `members` are the group's owners as peers of the lane.
  GroupChannels(const LanePlace& place, LaneChannels& channels, std::uint32_t group,
                const std::vector<std::uint32_t>& members)
      : place_(place), channels_(channels), group_(group), members_(members) {
    owners_.assign(channels.peers(), kNoOwner);
    for (std::uint32_t owner = 0; owner < members.size(); ++owner) owners_[members[owner]] = owner;
    if (place.timeline) log = std::make_unique<LaneLog>(place.timeline, group, place.lane);
  }

  std::uint32_t group() const { return group_; }
  // How many owners there are, including this rank if it is one.
  std::uint32_t owners() const { return static_cast<std::uint32_t>(members_.size()); }
  bool has(const PeerChannel& channel) const { return owners_[channel.peer] != kNoOwner; }
  std::uint32_t owner_of(const PeerChannel& channel) const { return owners_[channel.peer]; }
  Rank rank_of(const PeerChannel& channel) const {
    return place_.dedicated ? kNoRank : static_cast<Rank>(owner_of(channel));
  }
  std::string name_of(const PeerChannel& channel) const {
    return place_.dedicated ? channel.name() : "rank " + std::to_string(owner_of(channel));
  }
  // The address of an owner that is an aggregator.
  const std::string& address_of(std::uint32_t owner) const {
    return channels_.of(members_[owner]).connection.peer();
  }

  // These queue messages; the connections send when they are flushed.
  void send(std::uint32_t owner, wire::Message message) {
    message.header.group = group_;
    counters.count_sent(message.header);
    if (log) log->note_sent(message.header);
    channels_.send(members_[owner], std::move(message));
  }
  void send_to_all(const wire::Message& message) {
    for (std::uint32_t owner = 0; owner < owners(); ++owner) {
      if (!place_.is_self(owner)) send(owner, message);
    }
  }
  // Has an owner connected, if it is not.
  void ask(std::uint32_t owner) {
    if (!place_.is_self(owner)) channels_.ask(members_[owner]);
  }

  // Lets go of all memory that belongs to the group.
  void detach() {
    for (PeerChannel* channel : channels_.active()) channel->connection.detach(group_);
  }

  // The state of each peer of the group.
  std::vector<PeerSurvey> survey(Clock::time_point now) const {
    std::vector<PeerSurvey> peers;
    for (const PeerChannel* channel : channels_.active()) {
      if (has(*channel)) peers.push_back(survey(*channel, now));
    }
    return peers;
  }

  // Whether some members read more slowly than this rank sends.
  bool is_any_behind() const { return channels_.is_any_behind(members_); }
  // Bytes of results that an owner here may make before it looks whether a member is behind.
  std::size_t burst() const { return channels_.share().burst(members_.size()); }

  // Whether nothing comes from an owner at the moment.
  bool is_silent(std::uint32_t owner) const { return channels_.of(members_[owner]).is_silent(); }

  // Ranks from which nothing comes at the moment.
  std::vector<Rank> silent() const {
    std::vector<Rank> ranks;
    for (const PeerChannel* channel : channels_.active()) {
      if (has(*channel) && channel->is_silent() && !place_.dedicated) {
        ranks.push_back(rank_of(*channel));
      }
    }
    return ranks;
  }

  void count_received(const wire::FrameHeader& header) {
    counters.count_received(header);
    if (log) log->note_received(header);
  }

  LaneCounters counters;
  std::unique_ptr<LaneLog> log;  // null without a timeline

 private:
  PeerSurvey survey(const PeerChannel& channel, Clock::time_point now) const {
    const net::Connection& connection = channel.connection;
    std::optional<proto::Milliseconds> quiet;
    if (channel.pulse && !channel.is_excused) {
      quiet = channel.pulse->quiet(milliseconds_of(now), connection.bytes_received());
    }
    return {.name = name_of(channel),
            .rank = rank_of(channel),
            .is_connected = channel.dial() == Dial::connected,
            .quiet = quiet,
            .bytes_sent = connection.bytes_sent(),
            .bytes_received = connection.bytes_received(),
            .queued = connection.queued_bytes()};
  }

  static constexpr std::uint32_t kNoOwner = UINT32_MAX;

  const LanePlace& place_;
  LaneChannels& channels_;
  const std::uint32_t group_;
  const std::vector<std::uint32_t> members_;
  std::vector<std::uint32_t> owners_;  // by peer of the lane
};

}  // namespace sparsewire::comm
