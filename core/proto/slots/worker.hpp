// The worker's half of the slots: every operation of one rank in flight at one aggregator. It
// answers every result with its own block or with an empty acknowledgement (OmniReduce's Algorithm
// 2), repeats what may be lost, keeps to a window, and falls silent when nothing comes back.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "proto/slots/columns.hpp"
#include "proto/slots/pool.hpp"
#include "proto/slots/silence.hpp"
#include "proto/slots/slot_states.hpp"
#include "proto/slots/window.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {

struct SlotCounters {
  std::uint64_t datagrams = 0;        // sent, retransmissions among them
  std::uint64_t retransmissions = 0;  // of contributions that had been sent before
  std::uint64_t timeouts = 0;         // timers that ran out
  std::uint64_t recalls = 0;          // that have come
  std::uint64_t results = 0;          // taken, each once
  std::uint64_t duplicates = 0;       // results that had been taken before
  std::uint64_t stale = 0;            // datagrams that no slot waits for, any more or yet
  std::uint64_t rejected = 0;         // datagrams that make no sense
  std::uint64_t blocks_sent = 0;
  std::uint64_t blocks_empty = 0;  // columns of datagrams without a block
  Microseconds srtt{0};            // smoothed round trip, from a contribution to its result
  Microseconds rttvar{0};
  std::uint32_t window = 0;  // datagrams that may be in flight
};

class SlotWorker {
 public:
  SlotWorker(const SlotPool& pool, std::uint16_t worker);

  // Operations go through the slots in the order of these calls, which is the same on all workers.
  // The tensor must fit (see pool.hpp).
  void begin(std::uint64_t seq, const SlotTensor& tensor);

  // Takes a datagram of this job, rightly sealed. An odd datagram is counted and ignored.
  void on_datagram(const wire::Datagram& datagram, Microseconds now);

  // The slot of the next datagram, if there is one for now.
  std::optional<std::uint16_t> next(Microseconds now);
  // Writes that datagram, not sealed, and returns its size; 0: none for now.
  std::size_t poll(std::span<std::byte> out, Microseconds now);

  // Whether poll() may have something.
  bool has_work(Microseconds now) const;

  // When poll() may have something by itself: some timer runs out then.
  std::optional<Microseconds> next_timer() const;

  // The operations that have ended since the last call.
  std::vector<std::uint64_t> take_ended();
  // Whether some operation has not ended.
  bool is_busy() const { return !operations_.empty(); }

  // Lets go of all tensors; nothing is sent any more.
  void drop_all();

  // As of the last call of one of the above.
  const SlotCounters& counters() const { return counters_; }

 protected:
  struct Column {
    wire::ColumnRecord asked;  // the block that the last result asks for
    wire::ColumnRecord own;    // the next that this worker has: that block or a later one
    bool is_marked = false;    // The block was asked for before: its marks are known.
  };
  struct Slot {
    std::uint64_t round = 0;  // the next that it contributes to, or whose result it awaits
    bool opens = false;       // This is its first round of the operation: nothing is asked for.
    std::uint8_t columns_present = 0;  // bit c: its own block is the one asked for
    std::uint32_t sendings = 0;        // in this round
    std::uint32_t timeouts = 0;        // in this round, while results of others came
    std::uint64_t operation = 0;       // as operations are counted
    std::uint64_t number = 0;          // of its last datagram
    Microseconds first_sent{0};        // in this round
    Microseconds sent{0};              // the last time
    Column columns[wire::kMaxColumns];
  };
  std::vector<Slot> slots_;

 private:
  struct Operation {
    std::uint64_t seq;
    Columns columns;
    std::uint32_t slots_left;
  };

  Operation& operation_of(const Slot& slot) { return operations_[slot.operation - first_]; }
  const Columns& columns_of(const Slot& slot) const {
    return operations_[slot.operation - first_].columns;
  }
  void open_next(std::uint16_t slot, std::uint64_t operation);
  void end_operations();

  // Sending.
  void expire(Microseconds now);
  void fall_silent(Microseconds now);
  void expire_overdue(Microseconds now);
  void time_out(std::uint16_t slot, Microseconds now);
  bool awaits_result(std::uint16_t slot) const;
  bool awaits_any() const;
  Microseconds patience(std::uint16_t slot) const;
  Microseconds due(std::uint16_t slot) const;
  std::optional<std::uint16_t> next_to_send() const;
  std::optional<std::uint16_t> probe() const;
  void begin_to_wait(Microseconds now);
  void look_ahead(std::uint16_t slot);
  std::size_t write(std::uint16_t slot, std::span<std::byte> out);
  void note_sent(std::uint16_t slot, Microseconds now);

  // Results.
  bool is_ours(const wire::DatagramHeader& header) const;
  bool makes_sense(std::uint16_t slot, const wire::Datagram& result) const;
  bool may_ask(std::uint16_t slot, std::size_t column, const wire::ColumnRecord& asked) const;
  void on_result(const wire::Datagram& result, Microseconds now);
  void on_recall(std::uint16_t slot, Microseconds now);
  void hear(Microseconds now);
  void measure(const Slot& slot, const wire::Datagram& result, Microseconds now);
  void on_only_sending(const Slot& slot, bool was_last, Microseconds now);
  void give_up_overtaken();
  void on_false_alarm(Microseconds now);
  void take_values(const Slot& slot, const wire::Datagram& result);
  bool take_questions(Slot& slot, const wire::Datagram& result);
  void end(std::uint16_t slot);
  void on_loss(const Slot& slot, Microseconds now);
  void note_window() { counters_.window = static_cast<std::uint32_t>(window_.size()); }

  SlotPool pool_;
  std::uint16_t worker_;
  SlotStates states_;
  std::deque<Operation> operations_;  // from the first that has not ended on
  std::uint64_t first_ = 0;           // how many operations have ended
  std::vector<std::uint64_t> ended_;
  RoundTrip round_trip_;
  CongestionWindow window_;
  Overtaking overtaking_;
  Silence silence_;
  Microseconds trusted_{0};  // the last time that a silence proved to be without losses
  Microseconds look_at_timers_ = Microseconds::max();  // none runs out before
  SlotCounters counters_;
};

}  // namespace sparsewire::proto
