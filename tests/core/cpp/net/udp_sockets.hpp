// Sockets for datagrams on the loopback interface, and what arrives at them.
#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/udp/udp_socket.hpp"
#include "sockets.hpp"

namespace sparsewire::test {

struct Ipv4 {
  static constexpr int kFamily = AF_INET;
};
struct Ipv6 {
  static constexpr int kFamily = AF_INET6;
};

inline net::SystemAddress loopback(int family) {
  net::SystemAddress address{};
  if (family == AF_INET) {
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.size = sizeof address.ipv4;
  } else {
    address.ipv6.sin6_family = AF_INET6;
    address.ipv6.sin6_addr = in6addr_loopback;
    address.size = sizeof address.ipv6;
  }
  return address;
}

inline Socket bound_socket(int family, const net::SystemAddress& to) {
  Socket socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(socket.fd(), &to.generic, to.size) == 0);
  return socket;
}
inline Socket bound_socket(int family) { return bound_socket(family, loopback(family)); }

inline net::Address address_of(int fd) {
  net::SystemAddress address{};
  address.size = sizeof address.ipv6;
  REQUIRE(::getsockname(fd, &address.generic, &address.size) == 0);
  return net::Address::of(address);
}

inline void connect_to(const Socket& socket, const net::Address& to) {
  const net::SystemAddress address = to.system();
  REQUIRE(::connect(socket.fd(), &address.generic, address.size) == 0);
}

// One that is connected to another, which is bound alone.
struct UdpPair {
  explicit UdpPair(int family, const net::UdpOptions& options = {},
                   const net::UdpOptions& options_at_b = {})
      : UdpPair(bound_socket(family), bound_socket(family), options, options_at_b) {}
  UdpPair(Socket from, Socket to, const net::UdpOptions& options,
          const net::UdpOptions& options_at_b)
      : address_a(address_of(from.fd())), address_b(address_of(to.fd())) {
    connect_to(from, address_b);
    a = std::make_unique<net::UdpSocket>(from.release(), options);
    b = std::make_unique<net::UdpSocket>(to.release(), options_at_b);
  }

  net::Address address_a;
  net::Address address_b;
  std::unique_ptr<net::UdpSocket> a;
  std::unique_ptr<net::UdpSocket> b;
};

struct Arrival {
  std::vector<std::byte> data;
  net::Address from;
  bool operator==(const Arrival&) const = default;
};
using Arrivals = std::vector<Arrival>;

inline constexpr net::Microseconds kAnyTime{1'000'000};

// What is there.
inline Arrivals receive_some(net::UdpSocket& socket, net::Microseconds now = kAnyTime) {
  Arrivals arrivals;
  socket.receive(now, [&](std::span<std::byte> data, const net::Address& from) {
    arrivals.push_back({{data.begin(), data.end()}, from});
  });
  return arrivals;
}

inline bool wait_readable(net::UdpSocket& socket, int milliseconds) {
  pollfd end{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  if (::poll(&end, 1, milliseconds) != 1) return false;
  socket.note_ready(true, false);
  return true;
}

// As many as shall come, if they come within a few seconds; more where there are more.
inline Arrivals receive_many(net::UdpSocket& socket, std::size_t count) {
  Arrivals arrivals;
  while (arrivals.size() < count && (socket.is_readable() || wait_readable(socket, 5000))) {
    for (Arrival& one : receive_some(socket)) arrivals.push_back(std::move(one));
  }
  return arrivals;
}

inline std::vector<std::byte> datagram_of(std::size_t size, std::uint64_t number) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(number * 31 + i * 7);
  return data;
}

inline void commit(net::UdpSocket& socket, std::span<const std::byte> data,
                   const net::Address& to = {}) {
  std::ranges::copy(data, socket.room().begin());
  socket.commit(data.size(), to);
}

inline constexpr net::UdpOptions kPlain{.sending = net::Offload::none,
                                        .receiving = net::Offload::none};

inline void commit_many(net::UdpSocket& socket, int count, std::size_t size) {
  for (int i = 0; i < count; ++i) {
    commit(socket, datagram_of(size, static_cast<std::uint64_t>(i)));
  }
}

inline bool are_numbered(const Arrivals& arrivals, std::size_t size) {
  for (std::uint64_t i = 0; i < arrivals.size(); ++i) {
    if (arrivals[i].data != datagram_of(size, i)) return false;
  }
  return true;
}

// Many receivers of one sender, which is bound alone.
struct Crowd {
  explicit Crowd(std::size_t size, const net::UdpOptions& options = {})
      : sender(bound_socket(AF_INET).release(), options) {
    for (std::size_t i = 0; i < size; ++i) {
      Socket socket = bound_socket(AF_INET);
      addresses.push_back(address_of(socket.fd()));
      receivers.push_back(std::make_unique<net::UdpSocket>(socket.release()));
    }
  }
  net::UdpSocket sender;
  std::vector<net::Address> addresses;
  std::vector<std::unique_ptr<net::UdpSocket>> receivers;
};

}  // namespace sparsewire::test
