// The address from which a datagram comes or to which it goes: of IPv4 or IPv6, with a port.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sparsewire::net {

enum class AddressFamily : std::uint8_t { none, ipv4, ipv6 };

// The system's form of an address, with its length; 0: there is none.
struct SystemAddress {
  union {
    sockaddr generic;
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  };
  socklen_t size;
};

struct Address {
  AddressFamily family = AddressFamily::none;  // none: the peer that the socket is connected to
  std::uint16_t port = 0;
  std::uint32_t scope = 0;            // in IPv6: the interface of a link-local address
  std::array<std::uint8_t, 16> ip{};  // in network order; in IPv4 the first four

  static Address of(const SystemAddress& address);
  SystemAddress system() const;

  bool operator==(const Address&) const = default;
};

// The address to which a connected socket sends, and the port from which it sends.
Address peer_of(int fd);
std::uint16_t own_port(int fd);

// "10.0.0.1:4000", "[fe80::1]:4000".
std::string to_string(const Address& address);

struct AddressHash {
  std::size_t operator()(const Address& address) const;
};

}  // namespace sparsewire::net
