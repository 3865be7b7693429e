// Waits for any of many sockets, or for another thread's call to wake(). The thread that waits may
// idle until there is something to do, while another thread waits in its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "net/ready.hpp"

namespace sparsewire::net {

// What to report of a descriptor. If it is nearly always writable, `both` is of use only after a
// write had to wait.
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

  // Edge-triggered: each change is reported once. When the interest changes, the state then is
  // reported, too.
  void add(int fd, Ready& ready, Interest interest = Interest::both);
  void change(int fd, Ready& ready, Interest interest);
  void remove(int fd);

  // In a forked child: closes this process's copies of the descriptors.
  void disown();

  // Has wait() return at every interval as well; may be called once. A limit on each wait would
  // have the system set a timer each time.
  void tick_every(std::chrono::milliseconds interval);

  // From any thread.
  void wake();

  // Blocks until an event, a wake() or the timeout (none: for ever). The span is valid until the
  // next call. Like the constructor and add(), throws std::system_error if the kernel refuses.
  std::span<const Event> wait(std::optional<std::chrono::milliseconds> timeout);

  // Blocks as wait() does, but takes no events. While idlers are deaf, only stir() and the timeout
  // end it.
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
