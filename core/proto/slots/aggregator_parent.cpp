// A rack's aggregator as a worker of its parent. It has no timers: those of its workers are enough,
// because it passes on their repeats.
#include <cstring>

#include "proto/slots/aggregator.hpp"

namespace sparsewire::proto {

void SlotAggregator::pass(Round& round, std::vector<Outgoing>& out) {
  round.move(RoundStep::pass);
  ++counters_.passed;
  out.push_back({kParent, written(round, wire::DatagramKind::contribution)});
}

void SlotAggregator::pass_again(const Round& round, std::vector<Outgoing>& out) {
  ++counters_.passed_again;
  out.push_back({kParent, written(round, wire::DatagramKind::contribution)});
}

void SlotAggregator::on_parent(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  const bool is_recall = datagram.header.kind == wire::DatagramKind::recall;
  const bool is_result = is_recall || datagram.header.kind == wire::DatagramKind::result;
  if (!of_parent_ || !is_result || !is_in_pool(datagram)) return void(++counters_.rejected);
  const Round& last = slots_[datagram.header.slot].last();
  const bool is_awaited = datagram.header.round == last.header.round;
  if (is_awaited && last.state == RoundState::waiting) return on_parents_result(datagram, out);
  is_recall ? on_parents_recall(datagram, out) : void(++counters_.stale);
}

// The parent misses the rack's contribution to the round after that of the recall, although another
// rack's came twice.
void SlotAggregator::on_parents_recall(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  const wire::DatagramHeader& header = datagram.header;
  Slot& slot = slots_[header.slot];
  const Round& last = slot.last();
  const Round& before = slot.rounds[(last.header.round + 1) % 2];
  const bool is_begun = last.header.round == header.round + 1;
  if (is_begun && last.state == RoundState::waiting) return pass_again(last, out);
  if (is_begun && last.state == RoundState::adding) return recall(before, header, out);
  const bool is_next = last.header.round == header.round && last.state != RoundState::adding;
  is_next ? recall(last, header, out) : void(++counters_.stale);
}

// By the sender of the last contribution, workers know whose datagram was lost. That is the worker
// that came last here; or, if the rack's contribution was lost on the way to the parent, the worker
// that had it sent again.
void SlotAggregator::on_parents_result(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  Slot& slot = slots_[datagram.header.slot];
  Round& round = slot.last();
  if (!is_alike(datagram.header, round.header)) return void(++counters_.rejected);
  const bool was_last = datagram.header.worker == *of_parent_;
  if (was_last && slot.urged) round.header.worker = *slot.urged;
  round.header.present = datagram.header.present;
  for (std::size_t c = 0; c < datagram.header.columns; ++c) round.columns[c] = datagram.columns[c];
  std::byte* const sums = memory_of(round.header) + wire::datagram_head(round.header.columns);
  std::memcpy(sums, datagram.values.data(), datagram.values.size());
  complete(round, out);
}

}  // namespace sparsewire::proto
