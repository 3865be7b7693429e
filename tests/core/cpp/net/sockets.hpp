// Connected sockets inside one process, and file descriptors that close themselves.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace sparsewire::test {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    close();
    fd_ = other.release();
    return *this;
  }

  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ >= 0) ::close(release());
  }
  Socket duplicate() const { return Socket(::dup(fd_)); }

 private:
  int fd_ = -1;
};

struct SocketPair {
  Socket a;
  Socket b;
};

inline void make_non_blocking(const Socket& socket) {
  REQUIRE(::fcntl(socket.fd(), F_SETFL, O_NONBLOCK) == 0);
}

inline SocketPair local_pair() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {Socket(fds[0]), Socket(fds[1])};
}

// Over TCP on the loopback interface, as connections are in earnest.
inline SocketPair connected_pair() {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener.fd(), any, length) == 0);
  REQUIRE(::listen(listener.fd(), 1) == 0);
  REQUIRE(::getsockname(listener.fd(), any, &length) == 0);
  SocketPair pair{Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  REQUIRE(::connect(pair.a.fd(), any, length) == 0);
  pair.b = Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair.b.fd() >= 0);
  for (const Socket* end : {&pair.a, &pair.b}) {
    const int on = 1;
    REQUIRE(::setsockopt(end->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    make_non_blocking(*end);
  }
  return pair;
}

}  // namespace sparsewire::test
