// Memory to receive datagrams into, many with one system call.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "net/udp/address.hpp"

namespace sparsewire::net {

class Inbox {
 public:
  static constexpr std::size_t kMessages = 8;
  static constexpr std::size_t kMessageBytes = 64 * 1024;  // no message is larger

  // Receives messages. Returns what the system's call does: their number, or -1 with errno.
  int fill(int fd);

  // One datagram, or several from one sender that the system has put together: all but the last are
  // as large as `segment`.
  struct Message {
    std::span<std::byte> data;
    std::size_t segment;
    Address from;
  };
  Message message(std::size_t index);
  // How many datagrams the system has dropped so far because the receive buffer was full.
  std::uint32_t overruns() const { return overruns_; }

 private:
  std::unique_ptr<std::byte[]> memory_ =
      std::make_unique_for_overwrite<std::byte[]>(kMessages * kMessageBytes);
  std::array<mmsghdr, kMessages> headers_;
  std::array<iovec, kMessages> vectors_;
  std::array<SystemAddress, kMessages> senders_;
  struct Control {
    alignas(cmsghdr) std::array<std::byte, 2 * CMSG_SPACE(sizeof(int))> bytes;
  };
  std::array<Control, kMessages> controls_;
  std::uint32_t overruns_ = 0;
};

}  // namespace sparsewire::net
