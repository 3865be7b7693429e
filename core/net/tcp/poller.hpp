// Waits for any of many sockets, or for another thread's call to wake().
#pragma once

#include <chrono>
#include <optional>
#include <span>

namespace sparsewire::net {

class Poller {
 public:
  struct Event {
    void* tag;
    bool readable;
    bool writable;
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Edge-triggered: each change is told once, with the tag.
  void add(int fd, void* tag);
  void remove(int fd);

  // In a forked child: closes this process's copies of the descriptors.
  void disown();

  // From any thread.
  void wake();

  // Blocks until an event, a wake() or the timeout (none: for ever); the span is valid until the
  // next call. Like the constructor and add(), throws std::system_error where the kernel refuses.
  std::span<const Event> wait(std::optional<std::chrono::milliseconds> timeout);

 private:
  static constexpr int kEventsPerWait = 64;

  int epoll_fd_;
  int wake_fd_;
  Event events_[kEventsPerWait];
};

}  // namespace sparsewire::net
