// The slots' half of one lane: a worker for each aggregator, and the socket to it. It takes dense
// sums, once all ranks are known to have issued the same one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/datagram_place.hpp"
#include "comm/lane_place.hpp"
#include "comm/operation.hpp"
#include "comm/peer_channels.hpp"
#include "net/udp/udp_socket.hpp"
#include "proto/slots/worker.hpp"

namespace sparsewire::comm {

class LaneSlots {
 public:
  // Called where this rank has all results of an operation, or it has failed on every rank.
  using OnEnd = std::function<void(std::uint64_t seq, const Status& failure)>;

  LaneSlots(const LanePlace& place, LaneCounters& counters, OnEnd on_end);

  bool carries(const Operation& operation) const;

  // An operation that it carries, which begins once the gate is open; and whether there is one.
  void expect(const Operation& operation);
  bool awaits(std::uint64_t seq) const;
  bool has(std::uint64_t seq) const { return operations_.contains(seq); }
  void begin(std::uint64_t seq, Clock::time_point now);
  // Forgets one that has not begun.
  void drop(std::uint64_t seq) { operations_.erase(seq); }
  // Touches no tensor any more, for ever.
  void break_off() noexcept;

  // In a forked child: lets go of the sockets, of which nobody learns.
  void disown();

  void watch(ProgressThread& thread);
  // Takes in what has come, and sends what there is.
  void progress(Clock::time_point now);
  // Whether there is something to do right away; and when something is due.
  bool has_work(Clock::time_point now) const;
  Clock::time_point next_due() const;

 private:
  struct Aggregator {
    Aggregator(const proto::SlotPool& pool, std::uint16_t worker, int fd,
               const net::UdpOptions& options)
        : worker(pool, worker), socket(fd, options) {}

    proto::SlotWorker worker;
    net::UdpSocket socket;
  };
  struct Current {
    const Operation* operation;
    std::size_t unfinished = 0;  // aggregators; none before it begins
    Status failure = {};
  };

  proto::SlotTensor tensor_of(const Operation& operation) const;
  void receive(Aggregator& aggregator, proto::Microseconds now);
  void take(Aggregator& aggregator, std::span<const std::byte> data, proto::Microseconds now);
  void send(Aggregator& aggregator, proto::Microseconds now);
  void take_ended(Aggregator& aggregator);
  void publish();

  const LanePlace& place_;
  DatagramPlace& datagrams_;
  LaneCounters& counters_;
  OnEnd on_end_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;
  std::map<std::uint64_t, Current> operations_;
  std::uint64_t rejected_ = 0;
};

}  // namespace sparsewire::comm
