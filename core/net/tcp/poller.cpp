// epoll and an eventfd.
#include "net/tcp/poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
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

}  // namespace

Poller::Poller()
    : epoll_fd_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_fd_(checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  checked(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event), "epoll_ctl");
}

Poller::~Poller() { disown(); }

void Poller::disown() {
  for (int* fd : {&wake_fd_, &epoll_fd_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void Poller::add(int fd, void* tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = tag;
  checked(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

void Poller::remove(int fd) {
  // The socket may have left by itself, after an error.
  (void)::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
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
    if (!event.data.ptr) {
      std::uint64_t wakes;
      [[maybe_unused]] const ssize_t read = ::read(wake_fd_, &wakes, sizeof wakes);
      continue;
    }
    const bool readable = event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    events_[used++] = {event.data.ptr, readable, (event.events & EPOLLOUT) != 0};
  }
  return {events_, used};
}

}  // namespace sparsewire::net
