// The peers that the operations of a lane wait for; and the ranks to blame if one is past its
// deadline.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "comm/lanes/group_channels.hpp"
#include "comm/lanes/lane_book.hpp"
#include "comm/records/survey.hpp"

namespace sparsewire::comm {

class LaneProtocol;

class LaneWaits {
 public:
  LaneWaits(const LanePlace& place, const GroupChannels& peers, LaneBook& book,
            LaneProtocol& protocol)
      : place_(place), peers_(peers), book_(book), protocol_(protocol) {}

  // The peers that an operation waits for, as far as this rank knows without asking.
  Awaited awaited(std::uint64_t seq) const;
  // The same for each operation, from the oldest on, up to `most`.
  std::map<std::uint64_t, Awaited> all_awaited(std::size_t most) const;
  // The error of an operation that is past its deadline, which names the ranks that are late. If
  // this rank does not know them, it asks.
  Status overdue(Clock::time_point now);

 private:
  // The ranks that hold up an operation, and the operation in which they are late: itself, or one
  // that comes first.
  struct Late {
    std::uint64_t seq;
    std::vector<Rank> ranks;
  };
  Late late_for(std::uint64_t seq) const;
  Clock::duration grace_of(std::uint64_t seq) const;
  bool ask_who_is_late(std::uint64_t seq) const;
  Error timeout_error(std::uint64_t seq, const Late& late) const;

  const LanePlace& place_;
  const GroupChannels& peers_;
  LaneBook& book_;
  LaneProtocol& protocol_;
};

}  // namespace sparsewire::comm
