// Operations and their contributions; results are in worker_results.cpp.
#include "proto/slots/worker.hpp"

#include <algorithm>
#include <utility>

namespace sparsewire::proto {
namespace {

constexpr Microseconds kMostPatience{4'000'000};
constexpr std::uint32_t kMostDoublings = 12;
// The scout repeats what is overdue, and so has the aggregator recall other workers. These wait
// longer, for the case that the scout cannot. kTurn is in timeouts, from one worker's turn to the
// next: a result that a repeat brings about takes two round trips.
constexpr std::uint32_t kTurn = 3;

}  // namespace

SlotWorker::SlotWorker(const SlotPool& pool, std::uint16_t worker)
    : slots_(pool.slots),
      pool_(pool),
      worker_(worker),
      states_(pool.slots),
      window_(pool.slots, first_window(pool)) {
  note_window();
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

// Operations end in their order, as ranks may have more than one on their way.
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
  silence_ = {};
}

// --- Sending ---

bool SlotWorker::awaits_result(std::uint16_t slot) const {
  const SlotState state = states_.of(slot);
  return state == SlotState::flying || state == SlotState::overdue || state == SlotState::lost;
}

bool SlotWorker::awaits_any() const {
  return states_.has(SlotState::flying) || states_.has(SlotState::overdue) ||
         states_.has(SlotState::lost);
}

// How long a contribution may be on its way while results of others come. It doubles each time that
// it was too short. Workers take turns, which differ from round to round.
Microseconds SlotWorker::patience(std::uint16_t number) const {
  const Slot& slot = slots_[number];
  const auto first = static_cast<std::uint32_t>((number + slot.round) % pool_.workers);
  const std::uint32_t turn = (worker_ + pool_.workers - first) % pool_.workers;
  const Microseconds patience = (1 + kTurn * turn) * round_trip_.timeout_of_overtaken();
  return std::min(patience * (1 << std::min(slot.timeouts, kMostDoublings)), kMostPatience);
}

Microseconds SlotWorker::due(std::uint16_t slot) const {
  return std::max(slots_[slot].sent, trusted_) + patience(slot);
}

// As long as nothing has overtaken it, a contribution may wait in a queue: every result that comes
// gives all of them more time, as every acknowledgement does in TCP (RFC 6298).
void SlotWorker::expire(Microseconds now) {
  look_at_timers_ = Microseconds::max();
  if (!awaits_any()) return;
  const Microseconds timeout = round_trip_.timeout();
  if (silence_.due(timeout) <= now) fall_silent(now);
  look_at_timers_ = silence_.due(timeout);
  if (!silence_.is_silent()) expire_overdue(now);
}

// Some worker may just be slow, or nothing passes any more. The probe tells. All contributions in
// flight leave the window.
void SlotWorker::fall_silent(Microseconds now) {
  ++counters_.timeouts;
  if (!silence_.is_silent()) window_.on_silence(now);
  note_window();
  silence_.time_out(now, round_trip_.timeout());
  while (const auto slot = states_.first(SlotState::flying)) states_.move(*slot, SlotStep::give_up);
}

void SlotWorker::expire_overdue(Microseconds now) {
  for (std::uint16_t slot = 0; slot < pool_.slots; ++slot) {
    if (states_.of(slot) != SlotState::overdue) continue;
    const Microseconds due = this->due(slot);
    due > now ? void(look_at_timers_ = std::min(look_at_timers_, due)) : time_out(slot, now);
  }
}

// A loss for which a silence has shrunk the window does not shrink it again.
void SlotWorker::time_out(std::uint16_t slot, Microseconds now) {
  ++counters_.timeouts;
  ++slots_[slot].timeouts;
  states_.move(slot, SlotStep::time_out);
  const bool is_of_silence = silence_.is_doubting() && slots_[slot].first_sent < silence_.since();
  if (!is_of_silence) on_loss(slots_[slot], now);
}

std::optional<std::uint16_t> SlotWorker::next_to_send() const {
  if (states_.has(SlotState::urgent)) return states_.first(SlotState::urgent);
  if (silence_.is_silent()) return probe();
  const std::size_t in_flight = states_.size(SlotState::flying);
  if (states_.has(SlotState::lost) && window_.may_repeat(in_flight)) {
    return states_.first(SlotState::lost);
  }
  if (!window_.has_room(in_flight)) return {};
  return states_.first(SlotState::waiting);
}

// The first slot that awaits a result, as at other workers, and the same one until something comes.
// If its contribution has arrived, the repeat has the aggregator recall the missing workers.
std::optional<std::uint16_t> SlotWorker::probe() const {
  if (silence_.state() != SilenceState::probing) return {};
  for (std::uint16_t slot = 0; slot < pool_.slots; ++slot) {
    if (awaits_result(slot)) return slot;
  }
  return {};
}

bool SlotWorker::has_work(Microseconds now) const {
  return next_to_send().has_value() || (next_timer() && now >= look_at_timers_);
}

std::optional<Microseconds> SlotWorker::next_timer() const {
  if (!awaits_any()) return {};
  return look_at_timers_;
}

std::optional<std::uint16_t> SlotWorker::next(Microseconds now) {
  if (now >= look_at_timers_) expire(now);
  return next_to_send();
}

std::size_t SlotWorker::poll(std::span<std::byte> out, Microseconds now) {
  const auto slot = next(now);
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
                                    .dtype = layout.wire,
                                    .op = layout.wire_op,
                                    .block = layout.block,
                                    .round = slot.round};
  const auto present = static_cast<std::size_t>(__builtin_popcount(slot.columns_present));
  counters_.blocks_sent += present;
  counters_.blocks_empty += layout.columns - present;
  return wire::encode(header, {records, layout.columns}, out);
}

void SlotWorker::note_sent(std::uint16_t number, Microseconds now) {
  if (!awaits_any()) begin_to_wait(now);
  Slot& slot = slots_[number];
  if (states_.of(number) == SlotState::lost) window_.on_repeat();
  states_.move(number, SlotStep::send);
  slot.sent = now;
  slot.number = ++counters_.datagrams;
  if (slot.sendings == 0) slot.first_sent = now;
  if (slot.sendings++ != 0) ++counters_.retransmissions;
  silence_.on_sent(now);
  look_at_timers_ = std::min(look_at_timers_, silence_.due(round_trip_.timeout()));
}

// After a pause, nobody knows how much the path has room for (RFC 5681, 4.1). Nothing that was
// awaited is left to deny that the last silence was one of losses.
void SlotWorker::begin_to_wait(Microseconds now) {
  silence_.confirm();
  window_.accept_silence();
  if (now - silence_.heard() > round_trip_.timeout()) window_.restart();
  note_window();
  silence_.hear(now);
}

}  // namespace sparsewire::proto
