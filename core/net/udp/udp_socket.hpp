// A socket for datagrams. Many cross with one system call and, if the system can do it, many in one
// message. Datagrams that it cannot send in time are dropped and counted, as a network would do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "net/poller.hpp"
#include "net/ready.hpp"
#include "net/udp/address.hpp"
#include "net/udp/disturbance.hpp"
#include "net/udp/inbox.hpp"
#include "net/udp/outbox.hpp"

namespace sparsewire::net {

// Whether the system may cut messages into datagrams, and put them together (UDP_SEGMENT, UDP_GRO).
enum class Offload : std::uint8_t { none, where_possible };

struct UdpOptions {
  std::size_t datagram_bytes = 1472;  // the largest that is sent; received ones may have any size
  std::size_t most_queued = 1024;     // datagrams
  Offload sending = Offload::where_possible;
  std::size_t most_segments = kMostSegments;  // datagrams that leave as one message
  Offload receiving = Offload::where_possible;
  std::optional<Disturbance> disturbance;
};

struct UdpCounters {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t datagrams_received = 0;
  std::uint64_t bytes_sent = 0;  // of datagrams, without headers
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;  // each of one or several datagrams
  std::uint64_t messages_received = 0;
  std::uint64_t dropped = 0;   // datagrams for which there was no room, or that the system refused
  std::uint64_t overruns = 0;  // datagrams that found no room in the receive buffer
  std::uint64_t errors = 0;    // of system calls
  int last_error = 0;          // the last of them, as errno has it
};

class UdpSocket final : public Ready {
 public:
  // Called with each datagram, whose bytes may be changed, and are valid during the call.
  using Visit = Disturber::Visit;

  // Takes over a bound, non-blocking socket, which may be connected. Enlarges its buffers, and
  // forbids fragments.
  explicit UdpSocket(int fd, const UdpOptions& options = {});
  ~UdpSocket() { close(); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close();
  // In a forked child: lets go of this process's copy.
  void disown();

  void watch(const std::shared_ptr<Poller>& poller) override;
  void note_ready(bool readable, bool writable) override;

  // Whether there may be something to receive.
  bool is_readable() const { return is_open() && readable_; }
  // Hands out what has come, up to a bound for one turn.
  void receive(Microseconds now, const Visit& visit);

  // Whether another datagram fits; one that does not is dropped by commit().
  bool has_room() const { return !outbox_.is_full(); }
  // Memory for one datagram, the same until commit().
  std::span<std::byte> room() { return outbox_.room(); }
  // Queues what was written there, 1 to datagram_bytes bytes, for one destination or for each of
  // several. Without an address it goes to the peer that the socket is connected to.
  void commit(std::size_t size, const Address& to = {}) { commit(size, {&to, 1}); }
  void commit(std::size_t size, std::span<const Address> to);
  // Counts datagrams that found no room.
  void drop(std::size_t datagrams) { counters_.dropped += datagrams; }

  // Whether flush() can send something.
  bool is_writable() const { return is_open() && writable_ && has_output(); }
  bool has_output() const;
  // Sends what the system takes; the rest waits until it is writable again.
  void flush(Microseconds now);

  // When receive() or flush() has a datagram that was delayed on purpose.
  std::optional<Microseconds> next_due() const;

  // The last error since the last call: connection_refused if the peer's port is closed,
  // message_size if a datagram does not fit on the path, or others. No error ends anything.
  std::error_code take_error();
  const UdpCounters& counters() const { return counters_; }
  // Bytes of datagrams that may wait here to be received, as the system grants them.
  std::size_t receive_buffer() const { return receive_buffer_; }
  // Of both directions; zeros if nothing is disturbed.
  DisturbanceCounters disturbances() const;

 private:
  // Both directions of a bad network, and the datagrams that were committed since the last flush().
  struct Disturbed {
    explicit Disturbed(const Disturbance& settings);
    Disturber out;
    Disturber in;
    std::vector<Disturber::Parcel> committed;
  };

  void await_room();
  void note_error(int error);
  void hand_out(const Inbox::Message& message, Microseconds now, const Visit& visit);
  void queue(std::size_t size, std::span<const Address> to);
  void disturb(Microseconds now);
  void send_some();
  void note_refusal(int error);

  int fd_;
  Outbox outbox_;
  Inbox inbox_;
  std::size_t most_segments_;  // of a message; 1 if the system cuts none
  std::unique_ptr<Disturbed> disturbed_;
  std::weak_ptr<Poller> poller_;
  bool readable_ = false;
  bool writable_ = true;
  std::error_code error_;
  UdpCounters counters_;
  std::size_t receive_buffer_ = 0;
};

// The buffer that is asked of the system for each direction of a socket.
inline constexpr std::size_t kUdpBufferBytes = 4 << 20;

// What to set, if the system grants less than is needed.
std::optional<std::string> refused_buffer(const UdpSocket& socket, std::size_t needed);

// The largest datagram that fits on a connected socket's path in one piece, as far as is known.
std::size_t largest_datagram(int fd);

}  // namespace sparsewire::net
