// Asks the system for interfaces: addresses by getifaddrs, the rest by requests on a socket.
#include "net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "net/system_call.hpp"

namespace sparsewire::net {
namespace {

// A socket for requests about interfaces.
class Asker {
 public:
  Asker() : fd_(checked(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket")) {}
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  ~Asker() { close(fd_); }

  std::optional<int> mtu(const std::string& name) const {
    ifreq request = named(name);
    if (ioctl(fd_, SIOCGIFMTU, &request) < 0) return {};
    return request.ifr_mtu;
  }

  std::optional<int> speed_mbit(const std::string& name) const {
    ethtool_drvinfo driver{};
    driver.cmd = ETHTOOL_GDRVINFO;
    // A veth reports 10,000, whatever shapes its traffic.
    if (!ask(name, driver) || std::string_view(driver.driver) == "veth") return {};
    ethtool_cmd settings{};
    settings.cmd = ETHTOOL_GSET;
    if (!ask(name, settings)) return {};
    const auto speed = static_cast<int>(ethtool_cmd_speed(&settings));
    return speed > 0 ? std::optional(speed) : std::nullopt;  // SPEED_UNKNOWN is -1
  }

 private:
  static ifreq named(const std::string& name) {
    ifreq request{};
    name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    return request;
  }

  template <typename Answer>
  bool ask(const std::string& name, Answer& answer) const {
    ifreq request = named(name);
    request.ifr_data = reinterpret_cast<char*>(&answer);
    return ioctl(fd_, SIOCETHTOOL, &request) == 0;
  }

  int fd_;
};

std::optional<std::string> text_of(const sockaddr* address) {
  if (address == nullptr) return {};
  const void* ip = nullptr;
  if (address->sa_family == AF_INET) {
    ip = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    ip = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return {};
  }
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(address->sa_family, ip, text, sizeof text);
}

// The system tells of an address by its label, such as eth0:1, which no interface is called.
std::string name_of(const ifaddrs& address) {
  const std::string_view label = address.ifa_name;
  return std::string(label.substr(0, label.find(':')));
}

Interface& entry_of(std::vector<Interface>& found, const std::string& name) {
  const auto known = std::ranges::find(found, name, &Interface::name);
  return known != found.end() ? *known : found.emplace_back(Interface{.name = name});
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  checked(getifaddrs(&first), "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    Interface& own = entry_of(found, name_of(*each));
    if (auto address = text_of(each->ifa_addr)) own.addresses.push_back(std::move(*address));
  }
  const Asker asker;
  for (Interface& each : found) {
    each.mtu = asker.mtu(each.name);
    each.speed_mbit = asker.speed_mbit(each.name);
  }
  return found;
}

}  // namespace sparsewire::net
