// Waiting for, and ending, one operation.
#include "comm/operation.hpp"

#include <utility>

namespace sparsewire::comm {

bool Operation::wait(std::optional<std::chrono::nanoseconds> patience) const {
  std::unique_lock lock(mutex_);
  const auto has_ended = [this] { return ended_; };
  if (patience) return changed_.wait_for(lock, *patience, has_ended);
  changed_.wait(lock, has_ended);
  return true;
}

bool Operation::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

Status Operation::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Operation::end(Status failure) {
  // Notified under the lock: a waiter may destroy the operation as soon as it sees the end.
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace sparsewire::comm
