// Carries datagrams between the workers' halves of slots and the sockets, in the lane's turn.
#include "comm/lanes/lane_slots.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace sparsewire::comm {
namespace {

// Least bytes of a tensor that goes by slots, if sums are exact and there are no racks. Then the
// stream's sums have the same bits, and it takes one round trip, while slots take at least three.
constexpr std::size_t kLeastExact = 64 * 1024;

}  // namespace

LaneSlots::LaneSlots(const LanePlace& place, LaneCounters& counters, OnEnd on_end)
    : place_(place), datagrams_(*place.datagrams), counters_(counters), on_end_(std::move(on_end)) {
  for (std::uint32_t owner = 0; owner < datagrams_.sockets.peers(); ++owner) {
    aggregators_.push_back(std::make_unique<SlotEnd>(place, owner));
  }
}

// Sums of dense tensors that are sent as they are. A pure function of values that all ranks agree
// on.
bool LaneSlots::carries(const Operation& operation) const {
  const wire::Descriptor& descriptor = operation.stream_descriptor();
  const bool is_plain_sum = !descriptor.is_sparse && skips_zeros(descriptor.op) &&
                            descriptor.segment_codec == Codec::raw &&
                            descriptor.result_codec == Codec::raw;
  if (!is_plain_sum || descriptor.count == 0) return false;
  const bool is_fixed = datagrams_.arithmetic == proto::Arithmetic::fixed;
  if (is_fixed && !proto::has_fixed_point(descriptor.dtype, descriptor.op)) return false;
  const bool has_racks = datagrams_.workers != place_.topology.world_size;
  const std::uint64_t bytes = descriptor.count * element_size(descriptor.dtype);
  if (!is_fixed && !has_racks && bytes < kLeastExact) return false;
  return proto::fits_slots(datagrams_.pool(place_.topology), tensor_of(operation));
}

proto::SlotTensor LaneSlots::tensor_of(const Operation& operation) const {
  proto::SlotTensor tensor = operation.slot_tensor(datagrams_.arithmetic);
  tensor.owners = static_cast<std::uint32_t>(aggregators_.size());
  return tensor;
}

void LaneSlots::expect(const Operation& operation) {
  operations_.emplace(operation.seq(), Current{&operation});
}

bool LaneSlots::awaits(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  return at != operations_.end() && at->second.stage == Stage::at_gate;
}

void LaneSlots::open_gate(std::uint64_t seq, Clock::time_point now) {
  operations_.at(seq).stage = Stage::through;
  begin_in_order(now);
}

void LaneSlots::drop(std::uint64_t seq, Clock::time_point now) {
  operations_.erase(seq);
  begin_in_order(now);
}

void LaneSlots::begin_in_order(Clock::time_point now) {
  auto at = operations_.lower_bound(next_to_begin_);
  for (; at != operations_.end() && at->second.stage == Stage::through; ++at) {
    begin(at->first, at->second);
  }
  progress(now);
}

void LaneSlots::begin(std::uint64_t seq, Current& current) {
  next_to_begin_ = seq + 1;
  current.stage = Stage::begun;
  current.unfinished = aggregators_.size();
  proto::SlotTensor tensor = tensor_of(*current.operation);
  for (const auto& aggregator : aggregators_) {
    aggregator->worker().begin(seq, tensor);
    ++tensor.owner;
  }
}

void LaneSlots::break_off() noexcept {
  for (const auto& aggregator : aggregators_) {
    aggregator->worker().drop_all();
    for (SlotFlow& flow : aggregator->flows()) flow.socket().close();
  }
  operations_.clear();
}

void LaneSlots::disown() {
  for (const auto& aggregator : aggregators_) {
    for (SlotFlow& flow : aggregator->flows()) flow.socket().disown();
  }
}

void LaneSlots::watch(ProgressThread& thread) {
  for (const auto& aggregator : aggregators_) {
    for (SlotFlow& flow : aggregator->flows()) thread.watch(flow.socket());
  }
}

void LaneSlots::progress(Clock::time_point now) {
  const proto::Microseconds time = microseconds_of(now);
  for (const auto& aggregator : aggregators_) {
    if (!aggregator->is_open()) return;
    aggregator->receive(time);
    aggregator->send(time);
  }
  publish();
  for (const auto& aggregator : aggregators_) take_ended(*aggregator);
}

void LaneSlots::take_ended(SlotEnd& aggregator) {
  for (const std::uint64_t seq : aggregator.worker().take_ended()) {
    const auto at = operations_.find(seq);
    if (at == operations_.end() || --at->second.unfinished != 0) continue;
    operations_.erase(at);
    on_end_(seq);
  }
}

// Called before ends are told, so that stats() after a call is exact.
void LaneSlots::publish() {
  std::array<std::uint64_t, kSlotFigureCount> sums{};
  const auto add = [&](SlotFigure figure, std::uint64_t value) {
    sums[static_cast<std::size_t>(figure)] += value;
  };
  const auto raise = [&](SlotFigure figure, std::uint64_t value) {
    auto& most = sums[static_cast<std::size_t>(figure)];
    most = std::max(most, value);
  };
  for (const auto& aggregator : aggregators_) {
    const proto::SlotCounters& slots = aggregator->counters();
    for (const SlotFlow& flow : aggregator->flows()) {
      const net::UdpCounters& socket = flow.socket().counters();
      add(SlotFigure::datagrams_sent, socket.datagrams_sent);
      add(SlotFigure::datagrams_received, socket.datagrams_received);
      add(SlotFigure::datagram_bytes_sent, socket.bytes_sent);
      add(SlotFigure::datagram_bytes_received, socket.bytes_received);
      add(SlotFigure::datagrams_dropped, socket.dropped);
      add(SlotFigure::datagrams_overrun, socket.overruns);
      add(SlotFigure::datagram_errors, socket.errors);
    }
    add(SlotFigure::datagrams_rejected, slots.rejected + aggregator->rejected());
    add(SlotFigure::retransmissions, slots.retransmissions);
    add(SlotFigure::timeouts, slots.timeouts);
    add(SlotFigure::duplicates, slots.duplicates);
    add(SlotFigure::stale, slots.stale);
    raise(SlotFigure::rtt_us, static_cast<std::uint64_t>(slots.srtt.count()));
    raise(SlotFigure::window, slots.window);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    counters_.slots.set(static_cast<SlotFigure>(i), sums[i]);
  }
}

bool LaneSlots::has_work(Clock::time_point now) const {
  return std::ranges::any_of(aggregators_, [&](const auto& aggregator) {
    return aggregator->has_work(microseconds_of(now));
  });
}

Clock::time_point LaneSlots::next_due() const {
  auto due = proto::Microseconds::max();
  for (const auto& aggregator : aggregators_) {
    if (!aggregator->is_open()) continue;
    due = std::min(due, aggregator->next_due().value_or(due));
  }
  return due == proto::Microseconds::max() ? Clock::time_point::max()
                                           : Clock::time_point(Clock::duration(due));
}

}  // namespace sparsewire::comm
