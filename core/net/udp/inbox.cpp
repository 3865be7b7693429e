// The headers of recvmmsg, and what stands in them afterwards.
#include "net/udp/inbox.hpp"

#include <cstring>

#include "net/udp/offload_options.hpp"

namespace sparsewire::net {
namespace {

// What the system tells of a message that it has put together; 0 where it has not.
std::size_t segment_in(msghdr& header) {
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != SOL_UDP || one->cmsg_type != UDP_GRO) continue;
    int size;
    std::memcpy(&size, CMSG_DATA(one), sizeof size);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return 0;
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
  const std::size_t segment = segment_in(header);
  return {data, segment != 0 ? segment : data.size(), Address::of(senders_[index])};
}

}  // namespace sparsewire::net
