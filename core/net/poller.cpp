// epoll, an eventfd and a timerfd.
#include "net/poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace sparsewire::net {
namespace {

int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

void start_watching(int epoll_fd, int fd, std::uint32_t events, void* tag) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = tag;
  checked(::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

}  // namespace

Poller::Poller()
    : epoll_fd_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_fd_(checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
  start_watching(epoll_fd_, wake_fd_, EPOLLIN, nullptr);
}

Poller::~Poller() { disown(); }

void Poller::disown() {
  for (int* fd : {&timer_fd_, &wake_fd_, &epoll_fd_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void Poller::add(int fd, void* tag) {
  start_watching(epoll_fd_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, tag);
}

void Poller::remove(int fd) {
  // The socket may have left by itself, after an error.
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

void Poller::wake() {
  const std::uint64_t one = 1;
  // A full counter wakes just as well, so the result does not matter.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

std::span<const Poller::Event> Poller::wait(std::optional<std::chrono::milliseconds> timeout) {
  std::array<epoll_event, kEventsPerWait> ready;
  const int wait_ms = timeout ? static_cast<int>(timeout->count()) : -1;
  int count = ::epoll_wait(epoll_fd_, ready.data(), kEventsPerWait, wait_ms);
  if (count < 0 && errno == EINTR) count = 0;
  checked(count, "epoll_wait");
  std::size_t used = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    if (!event.data.ptr || event.data.ptr == &timer_fd_) {
      // Only once it is read does the timer go on.
      std::uint64_t times;
      const int fd = event.data.ptr ? timer_fd_ : wake_fd_;
      [[maybe_unused]] const ssize_t read = ::read(fd, &times, sizeof times);
      continue;
    }
    const bool readable = event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    events_[used++] = {event.data.ptr, readable, (event.events & EPOLLOUT) != 0};
  }
  return {events_, used};
}

}  // namespace sparsewire::net
