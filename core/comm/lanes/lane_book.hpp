// The operations that a lane has taken on: when each must end, and which cannot end any more
// because a rank has left.
#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "comm/operations/operation.hpp"

namespace sparsewire::comm {

class LaneBook {
 public:
  using Operations = std::map<std::uint64_t, std::shared_ptr<Operation>>;  // by number

  void add(std::shared_ptr<Operation> operation);
  void erase(std::uint64_t seq) { operations_.erase(seq); }
  bool has(std::uint64_t seq) const { return operations_.contains(seq); }
  bool empty() const { return operations_.empty(); }
  std::uint64_t oldest() const { return operations_.begin()->first; }

  // Notes that a rank has left in good order, after it had issued `issued` operations.
  void note_departure(Rank rank, std::uint64_t issued) { departed_[rank] = issued; }
  // The error of an operation that a rank cannot contribute to any more, because it has left.
  Status abandoned() const;

  const Operations& operations() const { return operations_; }

  // The first moment at which some deadline may have passed, of those noted since
  // forget_deadlines().
  Clock::time_point next_deadline() const { return next_deadline_; }
  void note_deadline(Clock::time_point due) { next_deadline_ = std::min(next_deadline_, due); }
  void forget_deadlines() { next_deadline_ = Clock::time_point::max(); }

 private:
  Operations operations_;
  std::map<Rank, std::uint64_t> departed_;  // rank -> operations it issued before it left
  Clock::time_point next_deadline_ = Clock::time_point::max();
};

}  // namespace sparsewire::comm
