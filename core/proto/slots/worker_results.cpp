// Takes what the aggregator sends: checks results, writes them to their places and answers them,
// and obeys recalls.
#include <algorithm>

#include "proto/slots/worker.hpp"

namespace sparsewire::proto {

void SlotWorker::on_datagram(const wire::Datagram& datagram, Microseconds now) {
  const wire::DatagramHeader& header = datagram.header;
  if (!is_ours(header)) {
    ++counters_.rejected;
    return;
  }
  const bool is_recall = header.kind == wire::DatagramKind::recall;
  counters_.recalls += is_recall;
  const Slot& slot = slots_[header.slot];
  const std::uint64_t behind = slot.round - header.round;
  const bool is_idle = states_.of(header.slot) == SlotState::idle;
  if (behind == 0 && !is_idle && slot.sendings != 0) return on_result(datagram, now);
  if (behind != 1) return void(++counters_.stale);
  hear(now);
  is_recall ? on_recall(header.slot, now) : void(++counters_.duplicates);
}

void SlotWorker::hear(Microseconds now) {
  if (silence_.is_silent()) look_at_timers_ = now;  // Timers have stood still.
  silence_.hear(now);
}

bool SlotWorker::is_ours(const wire::DatagramHeader& header) const {
  return (header.kind == wire::DatagramKind::result || header.kind == wire::DatagramKind::recall) &&
         header.job == pool_.job && header.epoch == pool_.epoch && header.slot < pool_.slots;
}

// --- Recalls ---

// The contribution has not come, although another worker's came twice. One that was sent just now
// may be on its way.
void SlotWorker::on_recall(std::uint16_t number, Microseconds now) {
  if (states_.of(number) == SlotState::waiting) return states_.move(number, SlotStep::hurry);
  if (!awaits_result(number) || now - slots_[number].sent < round_trip_.timeout() / 2) return;
  states_.move(number, SlotStep::hurry);
  on_loss(slots_[number], now);
}

void SlotWorker::on_loss(const Slot& slot, Microseconds now) {
  silence_.confirm();
  window_.on_loss(slot.first_sent, now);
  note_window();
}

// --- Results ---

void SlotWorker::on_result(const wire::Datagram& result, Microseconds now) {
  const std::uint16_t number = result.header.slot;
  if (!makes_sense(number, result)) {
    ++counters_.rejected;
    return;
  }
  ++counters_.results;
  hear(now);
  Slot& slot = slots_[number];
  measure(slot, result, now);
  take_values(slot, result);
  const bool is_done = take_questions(slot, result);
  ++slot.round;
  slot.opens = false;
  slot.sendings = 0;
  slot.timeouts = 0;
  if (is_done) return end(number);
  states_.move(number, SlotStep::ask);
}

// The aggregator is believed as far as it does no harm: it may ask for any block that some worker
// may have.
bool SlotWorker::makes_sense(std::uint16_t number, const wire::Datagram& result) const {
  const Slot& slot = slots_[number];
  const SlotLayout& layout = columns_of(slot).layout();
  const wire::DatagramHeader& header = result.header;
  if (header.columns != layout.columns || header.block != layout.block ||
      header.dtype != layout.wire || header.op != layout.wire_op ||
      (slot.columns_present & ~header.present) != 0) {
    return false;
  }
  for (std::size_t c = 0; c < layout.columns; ++c) {
    if (result.has(c) && slot.columns[c].asked.next == wire::kNoBlock) return false;
    if (!may_ask(number, c, result.columns[c])) return false;
  }
  return true;
}

bool SlotWorker::may_ask(std::uint16_t number, std::size_t at,
                         const wire::ColumnRecord& asked) const {
  const Slot& slot = slots_[number];
  const Column& column = slot.columns[at];
  if (asked.next > column.own.next) return false;  // Our own block would be left out.
  if (asked.next == wire::kNoBlock) return true;
  const SlotLayout& layout = columns_of(slot).layout();
  const std::uint32_t first = layout.column(number, static_cast<std::uint32_t>(at));
  const bool is_further = slot.opens || (column.asked.next != wire::kNoBlock &&  //
                                         asked.next > column.asked.next);
  const bool has_exponent = asked.next != column.own.next ||  //
                            asked.exponent >= column.own.exponent;
  const bool is_again = columns_of(slot).is_again(column.asked, asked);
  return (is_further || is_again) && asked.next < layout.blocks &&
         asked.next % layout.stride == first && has_exponent;
}

void SlotWorker::measure(const Slot& slot, const wire::Datagram& result, Microseconds now) {
  const bool is_recall = result.header.kind == wire::DatagramKind::recall;
  const bool was_last = result.header.worker == worker_;
  if (slot.sendings == 1 && !is_recall) on_only_sending(slot, was_last, now);
  window_.on_result(now);
  if (is_recall || (slot.sendings > 1 && was_last)) on_loss(slot, now);
  note_window();
  overtaking_.on_result(slot.number);
  give_up_overtaken();
}

// Only a contribution that was sent once is timed (Karn). If another worker was last, and this
// contribution was given up, the result has waited for that worker, and tells nothing of the path.
void SlotWorker::on_only_sending(const Slot& slot, bool was_last, Microseconds now) {
  const auto number = static_cast<std::uint16_t>(&slot - slots_.data());
  if (was_last || states_.of(number) == SlotState::flying) {
    round_trip_.add(now - slot.sent, was_last);
    window_.on_sample(now - slot.sent, now);
    counters_.srtt = round_trip_.smoothed();
    counters_.rttvar = round_trip_.variation();
  }
  if (silence_.is_doubting() && slot.sent < silence_.since()) on_false_alarm(now);
}

void SlotWorker::give_up_overtaken() {
  while (const auto first = states_.first(SlotState::flying)) {
    if (!overtaking_.has_overtaken(slots_[*first].number)) break;
    states_.move(*first, SlotStep::give_up);
    look_at_timers_ = std::min(look_at_timers_, due(*first));
  }
}

// A contribution that was sent before the silence, and not again, has arrived: so nothing was lost
// (F-RTO, RFC 5682), and all is as it was (Eifel, RFC 4015).
void SlotWorker::on_false_alarm(Microseconds now) {
  silence_.deny();
  window_.restore();
  trusted_ = now;
  for (const SlotState given_up : {SlotState::lost, SlotState::overdue}) {
    while (const auto slot = states_.first(given_up)) states_.move(*slot, SlotStep::trust);
  }
}

void SlotWorker::take_values(const Slot& slot, const wire::Datagram& result) {
  const Columns& columns = columns_of(slot);
  const std::size_t block_bytes = columns.layout().block_bytes();
  const std::byte* values = result.values.data();
  for (std::size_t c = 0; c < result.header.columns; ++c) {
    if (!result.has(c)) continue;
    const Column& column = slot.columns[c];
    columns.write(column.asked, values, column.is_marked);
    values += block_bytes;
  }
}

// True if the result asks for nothing more.
bool SlotWorker::take_questions(Slot& slot, const wire::Datagram& result) {
  const Columns& columns = columns_of(slot);
  bool is_done = true;
  for (std::size_t c = 0; c < result.header.columns; ++c) {
    Column& column = slot.columns[c];
    const wire::ColumnRecord& asked = result.columns[c];
    column.is_marked = columns.is_again(column.asked, asked);
    column.asked = asked;
    is_done &= asked.next == wire::kNoBlock;
  }
  return is_done;
}

void SlotWorker::end(std::uint16_t number) {
  states_.move(number, SlotStep::end);
  --operation_of(slots_[number]).slots_left;
  open_next(number, slots_[number].operation + 1);
  end_operations();
}

}  // namespace sparsewire::proto
