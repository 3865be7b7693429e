// Fills in the headers of recvmmsg, and reads the results from them.
#include "net/udp/inbox.hpp"

#include <cstring>
#include <optional>

#include "net/udp/offload_options.hpp"

namespace sparsewire::net {
namespace {

// What the system reports beside a message, of this kind.
std::optional<std::uint32_t> told_in(msghdr& header, int level, int type) {
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != level || one->cmsg_type != type) continue;
    std::uint32_t value;
    std::memcpy(&value, CMSG_DATA(one), sizeof value);
    return value;
  }
  return {};
}

}  // namespace

int Inbox::fill(int fd) {
  for (std::size_t i = 0; i < kMessages; ++i) {
    vectors_[i] = {memory_.get() + i * kMessageBytes, kMessageBytes};
    msghdr& header = headers_[i].msg_hdr;
    header = {};
    header.msg_name = &senders_[i].generic;
    header.msg_namelen = sizeof(sockaddr_in6);
    header.msg_iov = &vectors_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_[i].bytes.data();
    header.msg_controllen = controls_[i].bytes.size();
  }
  return ::recvmmsg(fd, headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
}

Inbox::Message Inbox::message(std::size_t index) {
  msghdr& header = headers_[index].msg_hdr;
  const std::span data(memory_.get() + index * kMessageBytes, headers_[index].msg_len);
  senders_[index].size = header.msg_namelen;
  overruns_ = told_in(header, SOL_SOCKET, SO_RXQ_OVFL).value_or(overruns_);
  // The segment's size, if the system has put the message together.
  const std::size_t segment = told_in(header, SOL_UDP, UDP_GRO).value_or(0);
  return {data, segment != 0 ? segment : data.size(), Address::of(senders_[index])};
}

}  // namespace sparsewire::net
