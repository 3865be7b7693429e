// A clock that only events move, and links between those who act: each with a rate, a delay and a
// queue that overflows.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace sparsewire::test {

using Nanoseconds = std::chrono::nanoseconds;

class VirtualTime {
 public:
  Nanoseconds now() const { return now_; }

  void at(Nanoseconds when, std::function<void()> action) {
    events_.push({std::max(when, now_), made_++, std::move(action)});
  }

  // Until nothing more can happen, or until then.
  void run(Nanoseconds until = Nanoseconds::max()) {
    while (!events_.empty() && events_.top().when <= until) {
      const auto action = std::move(const_cast<Event&>(events_.top()).action);
      now_ = events_.top().when;
      events_.pop();
      action();
    }
  }

 private:
  struct Event {
    Nanoseconds when;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(when, order) > std::pair(other.when, other.order);
    }
  };
  std::priority_queue<Event> events_;
  std::uint64_t made_ = 0;
  Nanoseconds now_{0};
};

struct LinkShape {
  double megabits = 500;  // per second
  Nanoseconds delay = std::chrono::microseconds{50};
  std::size_t queue_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t queue_packets = std::numeric_limits<std::size_t>::max();
};

class Link {
 public:
  explicit Link(const LinkShape& shape) : shape_(shape) {}

  // When a packet arrives that is sent now; nothing where the queue has no room for it.
  std::optional<Nanoseconds> send(std::size_t bytes, Nanoseconds now) {
    while (!queue_.empty() && queue_.front().first <= now) {
      queued_bytes_ -= queue_.front().second;
      queue_.pop_front();
    }
    if (queue_.size() >= shape_.queue_packets || queued_bytes_ + bytes > shape_.queue_bytes) {
      return {};
    }
    const Nanoseconds lasts{static_cast<std::int64_t>(8e3 * bytes / shape_.megabits)};
    free_at_ = std::max(free_at_, now) + lasts;
    queue_.emplace_back(free_at_, bytes);
    queued_bytes_ += bytes;
    return free_at_ + shape_.delay;
  }

 private:
  LinkShape shape_;
  std::deque<std::pair<Nanoseconds, std::size_t>> queue_;  // when each has left
  std::size_t queued_bytes_ = 0;
  Nanoseconds free_at_{0};
};

}  // namespace sparsewire::test
