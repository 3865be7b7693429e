// One job at a dedicated aggregator: the links of its workers, and an owner half per lane.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "comm/aggregator.hpp"
#include "comm/heartbeat.hpp"
#include "comm/sending.hpp"
#include "proto/stream/owner.hpp"

namespace sparsewire::comm {

class Aggregator::Link final : public net::FrameHandler {
 public:
  Link(Aggregator& aggregator, const Identity& identity, int fd)
      : connection(fd), identity(identity), aggregator_(aggregator) {}

  Status accepts(const wire::FrameHeader& header) override {
    return aggregator_.accepts(*this, header);
  }
  std::byte* place(const wire::FrameHeader&) override { return nullptr; }
  Status on_message(wire::Message message) override {
    return aggregator_.on_message(*this, std::move(message));
  }

  net::Connection connection;
  const Identity identity;
  bool greeted = false;                      // its hello was taken
  std::optional<proto::Pulse> pulse;         // of a greeted lane 0, which speaks for its rank
  bool departed = false;                     // it said goodbye
  Clock::time_point vouched = Clock::now();  // when it last had a place in a job that works

 private:
  Aggregator& aggregator_;
};

struct Aggregator::LanePart {
  wire::Topology topology;
  std::uint32_t owner_index;
  std::unique_ptr<proto::Owner> owner;
};

struct Aggregator::Job {
  std::map<std::uint32_t, LanePart> lanes;
  std::list<std::unique_ptr<Link>> links;
  Status broken;
  std::optional<proto::Metronome> metronome;  // from the first hello on
  std::size_t reserved = 0;                   // bytes, for all lanes that have begun
  std::size_t held = 0;                       // bytes, when last looked at

  // Results are shared by all links of a lane, so the longest queue stands for all.
  std::size_t memory() const {
    std::size_t total = 0;
    for (const auto& [lane, part] : lanes) total += part.owner->memory() + queued(lane);
    for (const auto& link : links) total += link->connection.incoming_bytes();
    return total;
  }

  bool has_work() const {
    return std::ranges::any_of(links,
                               [](const auto& link) { return link->connection.is_readable(); }) ||
           std::ranges::any_of(lanes, [this](const auto& lane) {
             return lane.second.owner->is_paused() && !is_behind(lane.first);
           });
  }

  bool is_behind(std::uint32_t lane) const { return queued(lane) > kMaxQueuedForWorker; }

  bool has_pulse(Rank rank) const {
    return std::ranges::any_of(
        links, [rank](const auto& link) { return link->identity.rank == rank && link->pulse; });
  }

 private:
  std::size_t queued(std::uint32_t lane) const {
    std::size_t longest = 0;
    for (const auto& link : links) {
      if (link->identity.lane != lane) continue;
      longest = std::max(longest, link->connection.queued_bytes());
    }
    return longest;
  }
};

}  // namespace sparsewire::comm
