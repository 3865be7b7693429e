// Operations and what is sent for them; results are in worker_results.cpp.
#include "proto/slots/worker.hpp"

#include <algorithm>
#include <utility>

namespace sparsewire::proto {
namespace {

// One worker repeats what is late, and makes the aggregator recall the others. All others wait
// longer, for the case that it cannot.
constexpr int kPatienceOfOthers = 4;
constexpr Microseconds kLeastPatienceOfOthers{20'000};
constexpr Microseconds kMostPatience{1'000'000};
constexpr std::uint32_t kMostDoublings = 2;
// Timeouts from one worker's turn to the next: what the first one asks for takes two round trips to
// come.
constexpr std::uint32_t kTurn = 3;

}  // namespace

SlotWorker::SlotWorker(const SlotPool& pool, std::uint16_t worker)
    : slots_(pool.slots), pool_(pool), worker_(worker), states_(pool.slots), window_(pool.slots) {
  counters_.window = static_cast<std::uint32_t>(window_.size());
}

// --- Operations ---

void SlotWorker::begin(std::uint64_t seq, const SlotTensor& tensor) {
  Columns columns(pool_, tensor);
  const std::uint32_t slots = columns.layout().slots();
  operations_.push_back({seq, std::move(columns), slots});
  const std::uint64_t operation = first_ + operations_.size() - 1;
  for (std::uint16_t slot = 0; slot < slots; ++slot) {
    if (states_.of(slot) == SlotState::idle) open_next(slot, operation);
  }
  end_operations();
}

// Opens the next operation, from this one on, that has a block for the slot.
void SlotWorker::open_next(std::uint16_t slot, std::uint64_t operation) {
  for (; operation < first_ + operations_.size(); ++operation) {
    if (!operations_[operation - first_].columns.layout().has_slot(slot)) continue;
    slots_[slot].operation = operation;
    slots_[slot].opens = true;
    return states_.move(slot, SlotStep::ask);
  }
}

// They end in their order, as ranks may have more than one on their way.
void SlotWorker::end_operations() {
  for (; !operations_.empty() && operations_.front().slots_left == 0; ++first_) {
    ended_.push_back(operations_.front().seq);
    operations_.pop_front();
  }
}

std::vector<std::uint64_t> SlotWorker::take_ended() { return std::exchange(ended_, {}); }

void SlotWorker::drop_all() {
  states_ = SlotStates(pool_.slots);
  operations_.clear();
  ended_.clear();
}

// --- Sending ---

bool SlotWorker::awaits_result(std::uint16_t slot) const {
  const SlotState state = states_.of(slot);
  return state == SlotState::flying || state == SlotState::overdue;
}

// How long a contribution may be on its way. It doubles each time that it was in vain. Workers take
// turns, which differ from round to round. Where later results have come, each comes in a while
// after the one before. Where none come, all but the first wait: some worker may just be slow.
Microseconds SlotWorker::patience(std::uint16_t number) const {
  const Slot& slot = slots_[number];
  const std::uint32_t first = (number + slot.round) % pool_.workers;
  const std::uint32_t turn = (worker_ + pool_.workers - first) % pool_.workers;
  Microseconds patience = round_trip_.timeout();
  if (states_.of(number) == SlotState::overdue) {
    patience = (1 + kTurn * turn) * round_trip_.timeout_of_overtaken();
  } else if (turn != 0) {
    patience = std::max(kPatienceOfOthers * patience, kLeastPatienceOfOthers);
  }
  return std::min(patience * (1 << std::min(slot.timeouts, kMostDoublings)), kMostPatience);
}

// As long as nothing has overtaken it, a contribution may wait in a queue: every result that comes
// gives it more time, as every acknowledgement does in TCP (RFC 6298).
Microseconds SlotWorker::due(std::uint16_t slot) const {
  const Microseconds sent = slots_[slot].sent;
  const bool is_overtaken = states_.of(slot) == SlotState::overdue;
  return (is_overtaken ? sent : std::max(sent, last_result_)) + patience(slot);
}

void SlotWorker::expire(Microseconds now) {
  look_at_timers_ = Microseconds::max();
  for (std::uint16_t slot = 0; slot < pool_.slots; ++slot) {
    if (!awaits_result(slot)) continue;
    const Microseconds due = this->due(slot);
    if (due > now) {
      look_at_timers_ = std::min(look_at_timers_, due);
      continue;
    }
    ++counters_.timeouts;
    ++slots_[slot].timeouts;
    states_.move(slot, SlotStep::hurry);
  }
}

std::optional<std::uint16_t> SlotWorker::next_to_send() const {
  if (states_.has(SlotState::urgent)) return states_.first(SlotState::urgent);
  if (!window_.has_room(states_.size(SlotState::flying))) return {};
  return states_.first(SlotState::waiting);
}

bool SlotWorker::has_work(Microseconds now) const {
  return next_to_send().has_value() || (next_timer() && now >= look_at_timers_);
}

std::optional<Microseconds> SlotWorker::next_timer() const {
  if (!states_.has(SlotState::flying) && !states_.has(SlotState::overdue)) return {};
  return look_at_timers_;
}

std::size_t SlotWorker::poll(std::span<std::byte> out, Microseconds now) {
  if (now >= look_at_timers_) expire(now);
  const auto slot = next_to_send();
  if (!slot) return 0;
  if (slots_[*slot].sendings == 0) look_ahead(*slot);
  const std::size_t size = write(*slot, out);
  note_sent(*slot, now);
  return size;
}

// Finds out, before the first sending of a round, what there is to send.
void SlotWorker::look_ahead(std::uint16_t number) {
  Slot& slot = slots_[number];
  const Columns& columns = operation_of(slot).columns;
  const SlotLayout& layout = columns.layout();
  slot.columns_present = 0;
  for (std::uint8_t c = 0; c < layout.columns; ++c) {
    Column& column = slot.columns[c];
    if (slot.opens) {
      column = {.asked = {}, .own = columns.find(layout.first(layout.column(number, c)))};
    } else if (column.asked.next != wire::kNoBlock && column.own.next == column.asked.next) {
      slot.columns_present |= static_cast<std::uint8_t>(1 << c);
      column.own = columns.after(column.asked);
    }
  }
}

std::size_t SlotWorker::write(std::uint16_t number, std::span<std::byte> out) {
  const Slot& slot = slots_[number];
  const Columns& columns = operation_of(slot).columns;
  const SlotLayout& layout = columns.layout();
  wire::ColumnRecord records[wire::kMaxColumns];
  std::byte* values = out.data() + wire::datagram_head(layout.columns);
  for (std::uint8_t c = 0; c < layout.columns; ++c) {
    const Column& column = slot.columns[c];
    records[c] = column.own;
    if ((slot.columns_present >> c & 1) == 0) continue;
    columns.read(column.asked, values);
    values += layout.block_bytes();
  }
  const wire::DatagramHeader header{.kind = wire::DatagramKind::contribution,
                                    .worker = worker_,
                                    .slot = number,
                                    .columns = layout.columns,
                                    .present = slot.columns_present,
                                    .job = pool_.job,
                                    .epoch = pool_.epoch,
                                    .round = slot.round,
                                    .dtype = layout.wire,
                                    .op = layout.wire_op,
                                    .block = layout.block};
  const auto present = static_cast<std::size_t>(__builtin_popcount(slot.columns_present));
  counters_.blocks_sent += present;
  counters_.blocks_empty += layout.columns - present;
  return wire::encode(header, {records, layout.columns}, out);
}

void SlotWorker::note_sent(std::uint16_t number, Microseconds now) {
  Slot& slot = slots_[number];
  states_.move(number, SlotStep::send);
  slot.sent = now;
  slot.number = ++counters_.datagrams;
  if (slot.sendings == 0) slot.first_sent = now;
  if (slot.sendings++ != 0) ++counters_.retransmissions;
  look_at_timers_ = std::min(look_at_timers_, now + patience(number));
}

}  // namespace sparsewire::proto
