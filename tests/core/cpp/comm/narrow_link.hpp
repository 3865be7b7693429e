// A connection between two ranks that carries as much as the test allows, and no more.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "sockets.hpp"

namespace sparsewire::test {

// Forwards what comes at one end to the other. `a` to `b` only as far as was let through.
class NarrowLink {
 public:
  NarrowLink() {
    SocketPair left = connected_pair();
    SocketPair right = connected_pair();
    for (const Socket* end : {&left.a, &left.b, &right.a, &right.b}) shrink_buffers(*end);
    a_ = std::move(left.a);
    b_ = std::move(right.b);
    inner_a_ = std::move(left.b);
    inner_b_ = std::move(right.a);
    there_ = std::jthread([this](std::stop_token stop) { carry(inner_a_, inner_b_, true, stop); });
    back_ = std::jthread([this](std::stop_token stop) { carry(inner_b_, inner_a_, false, stop); });
  }

  Socket take_a() { return std::move(a_); }
  Socket take_b() { return std::move(b_); }

  void let_through(std::size_t bytes) { allowed_ += bytes; }
  std::size_t carried() const { return carried_; }

 private:
  void carry(const Socket& from, const Socket& to, bool is_narrow, const std::stop_token& stop) {
    std::vector<char> bytes(64 * 1024);
    while (!stop.stop_requested()) {
      const std::size_t open = is_narrow ? allowed_ - carried_ : bytes.size();
      if (open == 0 || !is_ready(from, POLLIN)) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
        continue;
      }
      const ssize_t got = ::recv(from.fd(), bytes.data(), std::min(open, bytes.size()), 0);
      if (got <= 0) {
        ::shutdown(to.fd(), SHUT_WR);
        return;
      }
      for (ssize_t sent = 0; sent < got && !stop.stop_requested();) {
        if (!is_ready(to, POLLOUT)) continue;
        const auto left = static_cast<std::size_t>(got - sent);
        const ssize_t now = ::send(to.fd(), bytes.data() + sent, left, MSG_NOSIGNAL);
        if (now < 0) return;
        sent += now;
      }
      if (is_narrow) carried_ += static_cast<std::size_t>(got);
    }
  }

  // The kernel, too, is not to hold much of what waits.
  static void shrink_buffers(const Socket& socket) {
    const int bytes = 256 * 1024;
    for (const int buffer : {SO_SNDBUF, SO_RCVBUF}) {
      REQUIRE(::setsockopt(socket.fd(), SOL_SOCKET, buffer, &bytes, sizeof bytes) == 0);
    }
  }

  static bool is_ready(const Socket& socket, short events) {
    pollfd wanted{socket.fd(), events, 0};
    return ::poll(&wanted, 1, 1) == 1;
  }

  Socket a_, b_, inner_a_, inner_b_;
  std::atomic<std::size_t> allowed_{0};
  std::atomic<std::size_t> carried_{0};
  std::jthread there_, back_;  // Last, so that they end before what they work on.
};

}  // namespace sparsewire::test
