// The operations that a lane has taken on: when each must end, and which can end no more because a
// rank has left.
#pragma once

#include <map>
#include <memory>

#include "comm/lane_place.hpp"
#include "comm/operation.hpp"
#include "comm/peer_channels.hpp"
#include "comm/survey.hpp"

namespace sparsewire::comm {

class LaneProtocol;

class LaneBook {
 public:
  LaneBook(const LanePlace& place, const PeerChannels& peers) : place_(place), peers_(peers) {}

  void add(std::shared_ptr<Operation> operation);
  void erase(std::uint64_t seq) { operations_.erase(seq); }
  bool has(std::uint64_t seq) const { return operations_.contains(seq); }
  bool empty() const { return operations_.empty(); }
  std::uint64_t oldest() const { return operations_.begin()->first; }

  // Notes that a rank has left in good order, after it had issued so many operations.
  void note_departure(Rank rank, std::uint64_t issued) { departed_[rank] = issued; }
  // The error of an operation that a rank cannot contribute to any more, because it has left.
  Status abandoned() const;

  // Whom an operation waits for, as far as this rank knows, without asking.
  Awaited awaited(std::uint64_t seq, const LaneProtocol& protocol) const;
  // The same of each operation, from the oldest on, up to so many.
  std::map<std::uint64_t, Awaited> all_awaited(std::size_t most,
                                               const LaneProtocol& protocol) const;

  // The first moment at which some deadline may have passed.
  Clock::time_point next_deadline() const { return next_deadline_; }
  // The error of an operation that is past its deadline, which names those who are late.
  // Where it does not know them, it asks.
  Status overdue(Clock::time_point now, LaneProtocol& protocol);

 private:
  // The ranks that hold up an operation, and in which one: itself, or one that comes first.
  struct Late {
    std::uint64_t seq;
    std::vector<Rank> ranks;
  };
  Late late_for(std::uint64_t seq, const LaneProtocol& protocol) const;
  Clock::duration grace_of(std::uint64_t seq, const LaneProtocol& protocol) const;
  bool ask_who_is_late(std::uint64_t seq, LaneProtocol& protocol) const;
  Error timeout_error(std::uint64_t seq, const Late& late, const LaneProtocol& protocol) const;

  const LanePlace& place_;
  const PeerChannels& peers_;
  std::map<std::uint64_t, std::shared_ptr<Operation>> operations_;
  std::map<Rank, std::uint64_t> departed_;  // rank -> operations it issued before it left
  Clock::time_point next_deadline_ = Clock::time_point::max();
};

}  // namespace sparsewire::comm
