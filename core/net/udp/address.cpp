// Converts between the system's forms of addresses and ours.
#include "net/udp/address.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace sparsewire::net {
namespace {

constexpr std::size_t kIpv4Bytes = 4;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 32) * 0x9E3779B97F4A7C15u;
  return value ^ value >> 29;
}

}  // namespace

Address Address::of(const SystemAddress& address) {
  Address made;
  if (address.size >= sizeof(sockaddr_in) && address.generic.sa_family == AF_INET) {
    made.family = AddressFamily::ipv4;
    made.port = ntohs(address.ipv4.sin_port);
    std::memcpy(made.ip.data(), &address.ipv4.sin_addr, kIpv4Bytes);
  } else if (address.size >= sizeof(sockaddr_in6) && address.generic.sa_family == AF_INET6) {
    made.family = AddressFamily::ipv6;
    made.port = ntohs(address.ipv6.sin6_port);
    made.scope = address.ipv6.sin6_scope_id;
    std::memcpy(made.ip.data(), &address.ipv6.sin6_addr, made.ip.size());
  }
  return made;
}

SystemAddress Address::system() const {
  SystemAddress made{};
  if (family == AddressFamily::ipv4) {
    made.ipv4.sin_family = AF_INET;
    made.ipv4.sin_port = htons(port);
    std::memcpy(&made.ipv4.sin_addr, ip.data(), kIpv4Bytes);
    made.size = sizeof made.ipv4;
  } else if (family == AddressFamily::ipv6) {
    made.ipv6.sin6_family = AF_INET6;
    made.ipv6.sin6_port = htons(port);
    made.ipv6.sin6_scope_id = scope;
    std::memcpy(&made.ipv6.sin6_addr, ip.data(), ip.size());
    made.size = sizeof made.ipv6;
  }
  return made;
}

Address peer_of(int fd) {
  SystemAddress address{};
  address.size = sizeof address.ipv6;
  const bool is_known = ::getpeername(fd, &address.generic, &address.size) == 0;
  return is_known ? Address::of(address) : Address{};
}

std::uint16_t own_port(int fd) {
  SystemAddress address{};
  address.size = sizeof address.ipv6;
  const bool is_known = ::getsockname(fd, &address.generic, &address.size) == 0;
  return is_known ? Address::of(address).port : std::uint16_t{0};
}

std::string to_string(const Address& address) {
  if (address.family == AddressFamily::none) return "the peer";
  const bool is_ipv6 = address.family == AddressFamily::ipv6;
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, address.ip.data(), text.data(), text.size());
  std::string host = text.data();
  if (address.scope != 0) host += "%" + std::to_string(address.scope);
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(address.port);
}

std::size_t AddressHash::operator()(const Address& address) const {
  std::array<std::uint64_t, 2> halves;
  std::memcpy(halves.data(), address.ip.data(), sizeof halves);
  const std::uint64_t rest = std::uint64_t{address.scope} << 16 | address.port;
  return mixed(mixed(mixed(rest) ^ halves[0]) ^ halves[1]);
}

}  // namespace sparsewire::net
