// The network interfaces of this thread's network namespace, as the system reports them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparsewire::net {

struct Interface {
  std::string name;
  std::vector<std::string> addresses;  // its own, of IPv4 and of IPv6, in the system's order
  std::optional<int> mtu;              // bytes of the largest packet
  std::optional<int> speed_mbit;       // as the driver reports; none if it does not
};

// Throws std::system_error if the system does not tell.
std::vector<Interface> interfaces();

}  // namespace sparsewire::net
