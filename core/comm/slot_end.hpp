// One aggregator as a rank sees it: the worker's half of its slots, the socket to it, and whether
// datagrams still pass.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "comm/lane_place.hpp"
#include "comm/survey.hpp"
#include "net/udp/udp_socket.hpp"
#include "proto/slots/path.hpp"
#include "proto/slots/worker.hpp"

namespace sparsewire::comm {

class SlotEnd {
 public:
  // Takes over a socket that is connected to this aggregator.
  SlotEnd(const LanePlace& place, std::uint32_t owner, int fd);

  proto::SlotWorker& worker() { return worker_; }
  net::UdpSocket& socket() { return socket_; }
  const net::UdpSocket& socket() const { return socket_; }
  const proto::SlotCounters& counters() const { return worker_.counters(); }
  // Datagrams that this job has not sealed.
  std::uint64_t rejected() const { return rejected_; }

  // Takes in what has come.
  void receive(proto::Microseconds now);
  // Sends what there is, and asks where nothing comes.
  void send(proto::Microseconds now);
  bool has_work(proto::Microseconds now) const;
  std::optional<proto::Microseconds> next_due() const;

  // Whether nothing was answered for the whole peer timeout; and the error that says so.
  bool is_lost() const { return path_.is_lost(); }
  Error loss() const;
  // What people should hear of, such as an error of the socket, at most once a minute.
  std::optional<std::string> take_news() { return std::exchange(news_, {}); }
  PathSurvey survey() const;

 private:
  void take(std::span<const std::byte> data, proto::Microseconds now);
  void on_result_or_recall(const wire::Datagram& datagram, proto::Microseconds now);
  void greet(proto::Microseconds now);
  void note_errors(proto::Microseconds now);
  std::string advice() const;

  const LanePlace& place_;
  const DatagramPlace& datagrams_;
  const wire::WayKeys& keys_;
  const std::string address_;
  proto::SlotWorker worker_;
  net::UdpSocket socket_;
  proto::SlotPath path_;
  std::uint64_t rejected_ = 0;
  std::error_code error_;  // of the socket, since the last result
  std::optional<std::string> news_;
  proto::Microseconds next_news_{0};
};

}  // namespace sparsewire::comm
