// Waits for any of many sockets, or for another thread's call to wake(). The thread that does so
// may idle until there is something to do, and another one may wait in its place meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "net/ready.hpp"

namespace sparsewire::net {

// What to be told of. A descriptor that is nearly always writable is better asked for that only
// when it was not.
enum class Interest : std::uint8_t { reading, both };

class Poller {
 public:
  struct Event {
    Ready* ready;
    bool readable;
    bool writable;
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Edge-triggered: each change is told once. What is so when the interest changes is told, too.
  void add(int fd, Ready& ready, Interest interest = Interest::both);
  void change(int fd, Ready& ready, Interest interest);
  void remove(int fd);

  // In a forked child: closes this process's copies of the descriptors.
  void disown();

  // Has wait() return at every interval as well, at most once set. A limit on each wait would have
  // the system set a timer each time.
  void tick_every(std::chrono::milliseconds interval);

  // From any thread.
  void wake();

  // Blocks until an event, a wake() or the timeout (none: for ever); the span is valid until the
  // next call. Like the constructor and add(), throws std::system_error where the kernel refuses.
  std::span<const Event> wait(std::optional<std::chrono::milliseconds> timeout);

  // Blocks as wait() does, and takes no events; while idlers are deaf, until stir() or the timeout.
  void idle(std::optional<std::chrono::milliseconds> timeout);
  void set_idlers_deaf(bool deaf);
  void stir();

 private:
  static constexpr int kEventsPerWait = 64;

  int epoll_fd_;
  int wake_fd_;
  int timer_fd_ = -1;
  int idle_fd_;  // waits for epoll_fd_ and stir_fd_
  int stir_fd_;
  Event events_[kEventsPerWait];
};

}  // namespace sparsewire::net
