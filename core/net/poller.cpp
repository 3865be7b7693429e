// Waits by epoll, is woken by eventfds, and ticks by a timerfd.
#include "net/poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "net/system_call.hpp"

namespace sparsewire::net {
namespace {

void control(int epoll_fd, int what, int fd, std::uint32_t events, void* tag) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = tag;
  checked(::epoll_ctl(epoll_fd, what, fd, &event), "epoll_ctl");
}

void start_watching(int epoll_fd, int fd, std::uint32_t events, void* tag) {
  control(epoll_fd, EPOLL_CTL_ADD, fd, events, tag);
}

std::uint32_t events_of(Interest interest) {
  const std::uint32_t reading = EPOLLIN | EPOLLRDHUP | EPOLLET;
  return interest == Interest::both ? reading | EPOLLOUT : reading;
}

int new_eventfd() { return checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd"); }

int new_epoll() { return checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"); }

// Results do not matter: a full counter wakes just as well, and an empty one has woken a thread
// already.
void raise_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
}

void lower_event(int fd) {
  std::uint64_t times;
  [[maybe_unused]] const ssize_t read = ::read(fd, &times, sizeof times);
}

int milliseconds_of(std::optional<std::chrono::milliseconds> timeout) {
  return timeout ? static_cast<int>(timeout->count()) : -1;
}

}  // namespace

Poller::Poller()
    : epoll_fd_(new_epoll()),
      wake_fd_(new_eventfd()),
      idle_fd_(new_epoll()),
      stir_fd_(new_eventfd()) {
  start_watching(epoll_fd_, wake_fd_, EPOLLIN, nullptr);
  start_watching(idle_fd_, epoll_fd_, EPOLLIN, nullptr);
  start_watching(idle_fd_, stir_fd_, EPOLLIN, &stir_fd_);
}

Poller::~Poller() { disown(); }

void Poller::disown() {
  for (int* fd : {&timer_fd_, &wake_fd_, &epoll_fd_, &stir_fd_, &idle_fd_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void Poller::add(int fd, Ready& ready, Interest interest) {
  start_watching(epoll_fd_, fd, events_of(interest), &ready);
}

void Poller::change(int fd, Ready& ready, Interest interest) {
  control(epoll_fd_, EPOLL_CTL_MOD, fd, events_of(interest), &ready);
}

void Poller::remove(int fd) {
  // The socket may be gone already, after an error.
  (void)::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void Poller::tick_every(std::chrono::milliseconds interval) {
  timer_fd_ = checked(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd");
  const auto seconds = std::chrono::floor<std::chrono::seconds>(interval);
  const std::chrono::nanoseconds rest = interval - seconds;
  const timespec pause{static_cast<time_t>(seconds.count()), static_cast<long>(rest.count())};
  const itimerspec times{pause, pause};
  checked(::timerfd_settime(timer_fd_, 0, &times, nullptr), "timerfd_settime");
  start_watching(epoll_fd_, timer_fd_, EPOLLIN, &timer_fd_);
}

void Poller::wake() { raise_event(wake_fd_); }

void Poller::stir() { raise_event(stir_fd_); }

void Poller::set_idlers_deaf(bool deaf) {
  control(idle_fd_, EPOLL_CTL_MOD, epoll_fd_, deaf ? 0u : EPOLLIN, nullptr);
}

void Poller::idle(std::optional<std::chrono::milliseconds> timeout) {
  std::array<epoll_event, 2> ready;
  const int count = ::epoll_wait(idle_fd_, ready.data(), static_cast<int>(ready.size()),
                                 milliseconds_of(timeout));
  if (count < 0 && errno == EINTR) return;
  checked(count, "epoll_wait");
  for (int i = 0; i < count; ++i) {
    if (ready[static_cast<std::size_t>(i)].data.ptr) lower_event(stir_fd_);
  }
}

std::span<const Poller::Event> Poller::wait(std::optional<std::chrono::milliseconds> timeout) {
  std::array<epoll_event, kEventsPerWait> ready;
  int count = ::epoll_wait(epoll_fd_, ready.data(), kEventsPerWait, milliseconds_of(timeout));
  if (count < 0 && errno == EINTR) count = 0;
  checked(count, "epoll_wait");
  std::size_t used = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    if (!event.data.ptr || event.data.ptr == &timer_fd_) {
      // The timer goes on only once it is read.
      lower_event(event.data.ptr ? timer_fd_ : wake_fd_);
      continue;
    }
    const bool readable = event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    events_[used++] = {static_cast<Ready*>(event.data.ptr), readable,
                       (event.events & EPOLLOUT) != 0};
  }
  return {events_, used};
}

}  // namespace sparsewire::net
