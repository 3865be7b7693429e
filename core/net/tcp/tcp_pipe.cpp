// System calls on the socket; each moves as much as the kernel takes or has.
#include "net/tcp/tcp_pipe.hpp"

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/system_call.hpp"

namespace sparsewire::net {
namespace {

constexpr std::size_t kSmallMessage = 512;  // bytes

std::string address_of_peer(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> port;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(fd, generic, &size) != 0 ||
      ::getnameinfo(generic, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  const std::string name = host.data();
  const bool is_ipv6 = name.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + name + "]" : name) + ":" + port.data();
}

// Best effort: a socket that is not TCP's has none of these options.
void try_option(int fd, int level, int name, std::int64_t value) {
  const auto as_int = static_cast<int>(value);
  (void)::setsockopt(fd, level, name, &as_int, sizeof as_int);
}

// The meaning of a call's negative result: another attempt later, or the end.
Result<std::size_t> nothing_moved(const char* doing) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
  return peer_gone(doing, std::strerror(errno));
}

}  // namespace

TcpPipe::TcpPipe(int fd) : fd_(fd), peer_(address_of_peer(fd)) {}

// If the last packet is lost, TCP notices after 200 ms or more, because its acknowledgement could
// be delayed for so long (RFC 8985, tail loss probes). If another packet follows, TCP notices after
// a round trip.
Result<std::size_t> TcpPipe::write(std::span<const iovec> from) {
  std::size_t size = 0;
  for (const iovec& part : from) size += part.iov_len;
  if (!ends_apart_ || size < 2 || size > kSmallMessage) return send(from);
  std::array<std::byte, kSmallMessage> copy;
  std::size_t filled = 0;
  for (const iovec& part : from) {
    std::memcpy(copy.data() + filled, part.iov_base, part.iov_len);
    filled += part.iov_len;
  }
  const iovec head{copy.data(), size - 1};
  const auto sent = send({&head, 1});
  if (!sent || *sent != size - 1) return sent;
  const iovec tail{copy.data() + *sent, 1};
  const auto last = send({&tail, 1});
  if (!last) return last;
  return *sent + *last;
}

Result<std::size_t> TcpPipe::send(std::span<const iovec> from) {
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(from.data());
  header.msg_iovlen = from.size();
  const ssize_t sent = uninterrupted([&] { return ::sendmsg(fd_, &header, MSG_NOSIGNAL); });
  if (sent < 0) return nothing_moved("send");
  return static_cast<std::size_t>(sent);
}

Result<std::size_t> TcpPipe::read(std::span<const iovec> into) {
  const ssize_t got =
      uninterrupted([&] { return ::readv(fd_, into.data(), static_cast<int>(into.size())); });
  if (got < 0) return nothing_moved("receive");
  if (got == 0) return Error{ErrorCode::peer_lost, kNoRank, "the connection was closed"};
  return static_cast<std::size_t>(got);
}

// Bytes that the peer's kernel has not acknowledged yet.
std::size_t TcpPipe::undelivered() const {
  int unacknowledged = 0;
  if (::ioctl(fd_, SIOCOUTQ, &unacknowledged) != 0) return 0;
  return static_cast<std::size_t>(unacknowledged);
}

// Probes while the connection is idle, and a limit on what stays unacknowledged. Both are slower
// than heartbeats, which say more, but also watch connections without heartbeats.
void TcpPipe::expect_answers_within(std::chrono::milliseconds patience) {
  constexpr int kProbes = 3;
  constexpr std::chrono::milliseconds kGrace{2000};
  const auto pause = std::chrono::ceil<std::chrono::seconds>(patience / (kProbes + 1)).count();
  try_option(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  try_option(fd_, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  try_option(fd_, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  try_option(fd_, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  try_option(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, (patience + kGrace).count());
}

// A forked child may hold a copy of the socket, which would keep it connected after a mere close.
void TcpPipe::close() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  disown();
}

void TcpPipe::disown() {
  if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
}

}  // namespace sparsewire::net
