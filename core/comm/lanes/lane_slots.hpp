// The slots' half of one lane: a worker for each aggregator, and the flows to it. It takes dense
// sums, once all ranks are known to have issued the same operation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/lanes/group_channels.hpp"
#include "comm/operations/operation.hpp"
#include "comm/slots/datagram_place.hpp"
#include "comm/slots/lane_place.hpp"
#include "comm/slots/slot_end.hpp"

namespace sparsewire::comm {

class LaneSlots {
 public:
  // Called when this rank has all results of an operation.
  using OnEnd = std::function<void(std::uint64_t seq)>;

  LaneSlots(const LanePlace& place, LaneCounters& counters, OnEnd on_end);

  bool carries(const Operation& operation) const;

  // Takes an operation that it carries, which waits at its gate.
  void expect(const Operation& operation);
  bool awaits(std::uint64_t seq) const;
  bool has(std::uint64_t seq) const { return operations_.contains(seq); }
  // The operation's gate is open. Gates open in any order if there are several aggregators, but
  // operations begin in the order of their issue, which is the same on all ranks.
  void open_gate(std::uint64_t seq, Clock::time_point now);
  // Forgets an operation that has not begun.
  void drop(std::uint64_t seq, Clock::time_point now);
  // Touches no tensor any more, for ever.
  void break_off() noexcept;

  // In a forked child: lets go of the sockets. No peer notices.
  void disown();

  void watch(ProgressThread& thread);
  // Receives and sends datagrams.
  void progress(Clock::time_point now);
  // Whether there is something to do right away; and when something is due.
  bool has_work(Clock::time_point now) const;
  Clock::time_point next_due() const;

  // This rank's ends of slots, by aggregator.
  const std::vector<std::unique_ptr<SlotEnd>>& ends() const { return aggregators_; }

 private:
  enum class Stage : std::uint8_t { at_gate, through, begun };
  struct Current {
    const Operation* operation;
    Stage stage = Stage::at_gate;
    std::size_t unfinished = 0;  // aggregators
  };

  proto::SlotTensor tensor_of(const Operation& operation) const;
  void begin_in_order(Clock::time_point now);
  void begin(std::uint64_t seq, Current& current);
  void take_ended(SlotEnd& aggregator);
  void publish();

  const LanePlace& place_;
  DatagramPlace& datagrams_;
  LaneCounters& counters_;
  OnEnd on_end_;
  std::vector<std::unique_ptr<SlotEnd>> aggregators_;
  std::map<std::uint64_t, Current> operations_;
  std::uint64_t next_to_begin_ = 0;  // all operations below it have begun, or never will
};

}  // namespace sparsewire::comm
