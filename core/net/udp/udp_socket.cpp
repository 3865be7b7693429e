// System calls on the socket, and what to do if they are refused.
#include "net/udp/udp_socket.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/system_call.hpp"
#include "net/udp/offload_options.hpp"

namespace sparsewire::net {
namespace {

// Limits of one turn, before other work gets its turn.
constexpr std::size_t kBytesPerTurn = std::size_t{256} * 1024;
constexpr std::size_t kMessagesPerTurn = 64;

bool set_option(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

std::optional<int> option(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  if (::getsockopt(fd, level, name, &value, &size) != 0) return {};
  return value;
}

void enlarge(int fd, int forced, int granted) {
  if (!set_option(fd, SOL_SOCKET, forced, static_cast<int>(kUdpBufferBytes))) {
    set_option(fd, SOL_SOCKET, granted, static_cast<int>(kUdpBufferBytes));
  }
}

// A socket of one family refuses the other's options.
void forbid_fragments(int fd) {
  set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
}

// The errors by which the system says that it cannot cut messages, or not on this path.
bool is_refusal_to_segment(int error) {
  return error == EIO || error == EINVAL || error == ENOPROTOOPT;
}

bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

UdpSocket::Disturbed::Disturbed(const Disturbance& settings)
    : out(settings, Disturber::Direction::out), in(settings, Disturber::Direction::in) {}

UdpSocket::UdpSocket(int fd, const UdpOptions& options)
    : fd_(fd),
      outbox_(options.datagram_bytes, options.most_queued),
      most_segments_(options.sending == Offload::none ? 1 : options.most_segments) {
  if (options.disturbance) disturbed_ = std::make_unique<Disturbed>(*options.disturbance);
  enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  receive_buffer_ = static_cast<std::size_t>(option(fd, SOL_SOCKET, SO_RCVBUF).value_or(0)) / 2;
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  forbid_fragments(fd);
  if (options.receiving != Offload::none) set_option(fd, SOL_UDP, UDP_GRO, 1);
}

// A forked child may hold a copy of the descriptor, which would keep it watched after a mere close.
void UdpSocket::close() {
  if (!is_open()) return;
  if (const auto poller = poller_.lock()) poller->remove(fd_);
  disown();
  outbox_.clear();
}

void UdpSocket::disown() {
  if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
}

// The socket is nearly always writable, and each datagram that leaves would be reported.
void UdpSocket::watch(const std::shared_ptr<Poller>& poller) {
  poller->add(fd_, *this, Interest::reading);
  poller_ = poller;
}

void UdpSocket::note_ready(bool readable, bool writable) {
  readable_ |= readable;
  if (!writable) return;
  writable_ = true;
  if (const auto poller = poller_.lock()) poller->change(fd_, *this, Interest::reading);
}

void UdpSocket::await_room() {
  outbox_.yield();
  writable_ = false;
  if (const auto poller = poller_.lock()) poller->change(fd_, *this, Interest::both);
}

void UdpSocket::note_error(int error) {
  ++counters_.errors;
  counters_.last_error = error;
  error_ = std::error_code(error, std::generic_category());
}

std::error_code UdpSocket::take_error() { return std::exchange(error_, {}); }

void UdpSocket::receive(Microseconds now, const Visit& visit) {
  std::size_t messages = 0;
  const std::uint64_t most_bytes = counters_.bytes_received + kBytesPerTurn;
  while (is_readable() && messages < kMessagesPerTurn && counters_.bytes_received < most_bytes) {
    const int got = uninterrupted([this] { return inbox_.fill(fd_); });
    messages += static_cast<std::size_t>(std::max(got, 1));
    if (got < 0 && !is_for_later(errno)) {
      note_error(errno);
      continue;
    }
    readable_ = got == Inbox::kMessages;
    for (int i = 0; i < got && is_open(); ++i) {
      hand_out(inbox_.message(static_cast<std::size_t>(i)), now, visit);
    }
    counters_.overruns = inbox_.overruns();
  }
  if (disturbed_) disturbed_->in.release(now, visit);
}

void UdpSocket::hand_out(const Inbox::Message& message, Microseconds now, const Visit& visit) {
  ++counters_.messages_received;
  counters_.bytes_received += message.data.size();
  auto rest = message.data;
  do {
    const auto data = rest.first(std::min(message.segment, rest.size()));
    rest = rest.subspan(data.size());
    ++counters_.datagrams_received;
    if (disturbed_) {
      disturbed_->in.pass(data, message.from, now, visit);
    } else {
      visit(data, message.from);
    }
  } while (!rest.empty());
}

bool UdpSocket::has_output() const {
  return !outbox_.empty() || (disturbed_ && !disturbed_->committed.empty());
}

void UdpSocket::commit(std::size_t size, std::span<const Address> to) {
  if (!disturbed_) return queue(size, to);
  const auto data = room().first(size);
  for (const Address& one : to) {
    if (disturbed_->committed.size() == Disturber::kMostHeld) {
      ++counters_.dropped;
    } else {
      disturbed_->committed.push_back({one, {data.begin(), data.end()}});
    }
  }
}

void UdpSocket::queue(std::size_t size, std::span<const Address> to) {
  if (outbox_.is_full()) {
    counters_.dropped += to.size();
  } else {
    outbox_.put(size, to);
  }
}

// Puts the committed datagrams into the outbox that a bad network leaves.
void UdpSocket::disturb(Microseconds now) {
  const Visit requeue = [this](std::span<std::byte> data, const Address& to) {
    std::ranges::copy(data, room().begin());
    queue(data.size(), {&to, 1});
  };
  for (auto& parcel : disturbed_->committed) {
    disturbed_->out.pass(parcel.data, parcel.address, now, requeue);
  }
  disturbed_->committed.clear();
  disturbed_->out.release(now, requeue);
}

void UdpSocket::flush(Microseconds now) {
  if (disturbed_) disturb(now);
  while (is_open() && writable_ && !outbox_.empty()) send_some();
}

void UdpSocket::send_some() {
  const auto batch = outbox_.gather(most_segments_);
  const int sent = uninterrupted([&] {
    return ::sendmmsg(fd_, batch.data(), static_cast<unsigned>(batch.size()), MSG_NOSIGNAL);
  });
  if (sent < 0) return note_refusal(errno);
  const auto messages = static_cast<std::size_t>(sent);
  for (std::size_t i = 0; i < messages; ++i) {
    const auto [datagrams, bytes] = outbox_.load(i);
    counters_.datagrams_sent += datagrams;
    counters_.bytes_sent += bytes;
  }
  counters_.messages_sent += messages;
  outbox_.drop(messages);
}

// Takes the refusal of the first message of a batch.
void UdpSocket::note_refusal(int error) {
  const std::size_t datagrams = outbox_.load(0).datagrams;
  if (is_for_later(error)) {
    await_room();
  } else if (datagrams > 1 && is_refusal_to_segment(error)) {
    most_segments_ = 1;
  } else {
    note_error(error);
    counters_.dropped += datagrams;
    outbox_.drop(1);
  }
}

std::optional<Microseconds> UdpSocket::next_due() const {
  if (!disturbed_) return {};
  const auto out = disturbed_->out.next_due();
  const auto in = disturbed_->in.next_due();
  return out && in ? std::min(*out, *in) : out ? out : in;
}

DisturbanceCounters UdpSocket::disturbances() const {
  if (!disturbed_) return {};
  const DisturbanceCounters& out = disturbed_->out.counters();
  const DisturbanceCounters& in = disturbed_->in.counters();
  return {out.lost + in.lost, out.duplicated + in.duplicated, out.reordered + in.reordered,
          out.corrupted + in.corrupted};
}

std::optional<std::string> refused_buffer(const UdpSocket& socket, std::size_t needed) {
  if (socket.receive_buffer() >= std::min(needed, kUdpBufferBytes)) return {};
  return "datagrams may be dropped on this host: the system grants a receive buffer of " +
         std::to_string(socket.receive_buffer()) + " bytes; set the sysctl net.core.rmem_max to " +
         std::to_string(kUdpBufferBytes);
}

std::size_t largest_datagram(int fd) {
  constexpr int kUdpBytes = 8, kIpv4Bytes = 20, kIpv6Bytes = 40, kLeastMtu = 1500, kMost = 65'507;
  const bool is_ipv6 = option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6;
  const int mtu = is_ipv6 ? option(fd, IPPROTO_IPV6, IPV6_MTU).value_or(kLeastMtu)
                          : option(fd, IPPROTO_IP, IP_MTU).value_or(kLeastMtu);
  const int headers = kUdpBytes + (is_ipv6 ? kIpv6Bytes : kIpv4Bytes);
  return static_cast<std::size_t>(std::min(mtu - headers, kMost));
}

}  // namespace sparsewire::net
