// One flow of a rank's datagrams to an aggregator: a socket of its own, and so a source port, by
// which network cards and routes deal packets out; and whether datagrams still pass by it.
#pragma once

#include <optional>
#include <string>
#include <system_error>

#include "comm/slots/lane_place.hpp"
#include "net/udp/udp_socket.hpp"
#include "proto/slots/path.hpp"

namespace sparsewire::comm {

class SlotFlow {
 public:
  // Takes over a socket that is connected to this aggregator.
  SlotFlow(const LanePlace& place, std::uint32_t owner, std::uint16_t number, int fd);

  net::UdpSocket& socket() { return socket_; }
  const net::UdpSocket& socket() const { return socket_; }
  std::uint16_t number() const { return number_; }
  // The port on this host.
  std::uint16_t port() const { return port_; }

  // A result of a round to which this rank has contributed has come by it.
  void on_result(proto::Microseconds now);
  // The answer to one of its greetings, of so many bytes.
  void on_greeting(const wire::DatagramHeader& header, std::size_t bytes, proto::Microseconds now);

  // Greets if results are awaited and none come.
  void ask(bool awaits_results, proto::Microseconds now);
  // Sends what is queued. Returns the socket's error, if there is a new one.
  std::error_code flush(proto::Microseconds now);

  bool has_work() const { return socket_.is_readable() || socket_.is_writable(); }
  std::optional<proto::Microseconds> next_due() const;

  // Whether nothing was answered for the whole peer timeout; and for half of it.
  bool is_lost() const { return path_.is_lost(); }
  bool is_doubtful() const { return 2 * path_.silence() >= patience_; }
  bool is_noted() const { return path_.is_noted(); }
  bool is_narrow() const { return path_.is_narrow(); }
  proto::Microseconds silence() const { return path_.silence(); }
  // The socket's error since the last result.
  std::error_code error() const { return error_; }

 private:
  void greet(const proto::SlotPath::Hello& hello);

  const LanePlace& place_;
  const wire::WayKeys& keys_;
  const std::uint16_t number_;
  const std::uint16_t port_;
  const proto::Microseconds patience_;
  net::UdpSocket socket_;
  proto::SlotPath path_;
  std::error_code error_;
};

}  // namespace sparsewire::comm
