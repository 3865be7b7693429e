// One aggregator as a rank sees it: the worker's half of its slots, the flows to it, and whether
// datagrams still pass.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "comm/records/survey.hpp"
#include "comm/slots/lane_place.hpp"
#include "comm/slots/slot_flow.hpp"
#include "proto/slots/worker.hpp"

namespace sparsewire::comm {

class SlotEnd {
 public:
  // Takes over the place's sockets to this aggregator.
  SlotEnd(const LanePlace& place, std::uint32_t owner);

  proto::SlotWorker& worker() { return worker_; }
  // A slot's datagrams go by one flow, both ways.
  std::deque<SlotFlow>& flows() { return flows_; }
  const std::deque<SlotFlow>& flows() const { return flows_; }
  bool is_open() const { return flows_.front().socket().is_open(); }
  const proto::SlotCounters& counters() const { return worker_.counters(); }
  // Datagrams that this job has not sealed.
  std::uint64_t rejected() const { return rejected_; }

  // Receives datagrams.
  void receive(proto::Microseconds now);
  // Sends datagrams, and greetings if nothing comes.
  void send(proto::Microseconds now);
  bool has_work(proto::Microseconds now) const;
  std::optional<proto::Microseconds> next_due() const;

  // Whether some flow had no answer for the whole peer timeout, and the error that says so. One
  // flow is enough, because its slots hold up all others.
  bool is_lost() const { return lost() != nullptr; }
  Error loss() const;
  // News for people, such as an error of the socket, at most once a minute.
  std::optional<std::string> take_news() { return std::exchange(news_, {}); }
  PathSurvey survey() const;

 private:
  void take(SlotFlow& flow, std::span<const std::byte> data, proto::Microseconds now);
  bool is_of(const SlotFlow& flow, const wire::DatagramHeader& header) const;
  void on_result_or_recall(SlotFlow& flow, const wire::Datagram& datagram, proto::Microseconds now);
  SlotFlow& flow_of(std::uint16_t slot) { return flows_[wire::flow_of(slot, datagrams_.flows())]; }
  void flush(SlotFlow& flow, proto::Microseconds now);
  const SlotFlow* lost() const;
  bool others_pass() const;
  std::string named(const SlotFlow& flow) const;
  std::string advice(const SlotFlow& flow) const;

  const LanePlace& place_;
  const DatagramPlace& datagrams_;
  const wire::WayKeys& keys_;
  const std::string address_;
  proto::SlotWorker worker_;
  std::deque<SlotFlow> flows_;
  std::uint64_t rejected_ = 0;
  std::optional<std::string> news_;
  proto::Microseconds next_news_{0};
};

}  // namespace sparsewire::comm
