// Orders to a lane that need no memory, which may be what is lacking: to break off, and to leave.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "comm/progress_thread.hpp"

namespace sparsewire::comm {

class Orders {
 public:
  // To leave after so many operations, once nothing has moved for so long.
  struct Leave {
    std::uint64_t issued;
    Clock::duration linger;
  };
  struct Pending {
    Status to_break;
    std::optional<Leave> to_leave;
  };

  // From any thread.
  void break_off(Error error) noexcept {
    const std::lock_guard lock(mutex_);
    pending_.to_break = std::move(error);
  }
  void leave(const Leave& order) noexcept {
    const std::lock_guard lock(mutex_);
    pending_.to_leave = order;
  }

  // What has come since the last call.
  Pending take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pending_, {});
  }

 private:
  std::mutex mutex_;
  Pending pending_;
};

}  // namespace sparsewire::comm
