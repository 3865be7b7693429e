// Takes contributions in and makes results. Integers are added as they come. If the order of the
// sum matters, contributions are kept until all have come, and added up in rank order. All that
// concerns a parent is in aggregator_parent.cpp.
#include "proto/slots/aggregator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire::proto {
namespace {

// Bytes for the values of a datagram, and for all of it. This memory is aligned as values are.
std::size_t values_room(const SlotPool& pool) {
  return (pool.datagram_bytes - wire::datagram_head(1)) / 8 * 8;
}
std::size_t datagram_room(const SlotPool& pool) {
  return ceil_div<std::size_t>(pool.datagram_bytes, 8) * 8;
}

std::size_t contributions(const SlotPool& pool) { return std::size_t{pool.slots} * pool.workers; }

std::size_t results_bytes(const SlotPool& pool) { return 2 * pool.slots * datagram_room(pool); }
std::size_t kept_bytes(const SlotPool& pool) { return contributions(pool) * values_room(pool); }
std::size_t seen_words(const SlotPool& pool) { return pool.slots * bitmap_words(pool.workers); }
std::size_t sums_count(const SlotPool& pool) {
  return values_room(pool) / element_size(DType::float16);
}

// Whether the bits of the sum depend neither on its order nor on a division.
bool is_added_at_once(const wire::DatagramHeader& header) {
  return header.dtype == DType::int32 && header.op == ReduceOp::sum;
}

bool has_ended(RoundState state) {
  return state == RoundState::complete || state == RoundState::blank;
}

}  // namespace

bool SlotAggregator::is_alike(const wire::DatagramHeader& a, const wire::DatagramHeader& b) {
  return a.columns == b.columns && a.dtype == b.dtype && a.op == b.op && a.block == b.block;
}

SlotAggregator::SlotAggregator(const SlotPool& pool, std::optional<std::uint16_t> of_parent)
    : slots_(pool.slots),
      pool_(pool),
      of_parent_(of_parent),
      seen_(seen_words(pool)),
      present_(contributions(pool)),
      results_(std::make_unique_for_overwrite<std::byte[]>(results_bytes(pool))),
      kept_(std::make_unique_for_overwrite<std::byte[]>(kept_bytes(pool))),
      sums_(sums_count(pool)) {
  for (Slot& slot : slots_) {
    slot.rounds[0].header.round = UINT64_MAX - 1;
    slot.rounds[1].header.round = UINT64_MAX;
  }
}

std::size_t SlotAggregator::memory_needed(const SlotPool& pool) {
  return sizeof(SlotAggregator) + pool.slots * sizeof(Slot) +
         seen_words(pool) * sizeof(std::uint64_t) + contributions(pool) + results_bytes(pool) +
         kept_bytes(pool) + sums_count(pool) * sizeof(float);
}

std::uint64_t* SlotAggregator::seen(std::uint16_t slot) {
  return seen_.data() + slot * bitmap_words(pool_.workers);
}

std::byte* SlotAggregator::memory_of(const wire::DatagramHeader& header) {
  return results_.get() + (2 * std::size_t{header.slot} + header.round % 2) * datagram_room(pool_);
}

std::byte* SlotAggregator::kept(std::uint16_t slot, std::uint16_t worker) {
  return kept_.get() + (std::size_t{slot} * pool_.workers + worker) * values_room(pool_);
}

// --- What comes ---

void SlotAggregator::on_datagram(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  if (!is_ours(datagram)) {
    ++counters_.rejected;
    return;
  }
  const wire::DatagramHeader& header = datagram.header;
  Slot& slot = slots_[header.slot];
  Round& round = slot.rounds[header.round % 2];
  const Round& other = slot.rounds[(header.round + 1) % 2];
  const bool is_next = header.round == round.header.round + 2 &&
                       header.round == other.header.round + 1 && has_ended(other.state);
  if (is_next) {
    start(round, header);
    slot.missing = pool_.workers;
    slot.urged.reset();
  } else if (header.round != round.header.round) {
    ++counters_.stale;
    return;
  } else if (round.state != RoundState::adding || test_bit(seen(header.slot), header.worker)) {
    return on_duplicate(datagram, out);
  } else if (!is_alike(header, round.header)) {
    ++counters_.rejected;
    return;
  }
  take(datagram, out);
}

bool SlotAggregator::is_ours(const wire::Datagram& datagram) const {
  const wire::DatagramHeader& header = datagram.header;
  return header.kind == wire::DatagramKind::contribution && header.worker < pool_.workers &&
         is_in_pool(datagram);
}

bool SlotAggregator::is_in_pool(const wire::Datagram& datagram) const {
  const wire::DatagramHeader& header = datagram.header;
  return header.job == pool_.job && header.epoch == pool_.epoch && header.slot < pool_.slots &&
         wire::datagram_head(header.columns) + header.columns * header.block_bytes() <=
             pool_.datagram_bytes;
}

void SlotAggregator::start(Round& round, const wire::DatagramHeader& header) {
  round.move(RoundStep::start);
  round.header = header;
  round.header.kind = wire::DatagramKind::result;
  round.header.present = 0;
  for (wire::ColumnRecord& column : round.columns) column = {};
}

void SlotAggregator::take(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  const wire::DatagramHeader& header = datagram.header;
  Slot& slot = slots_[header.slot];
  Round& round = slot.rounds[header.round % 2];
  ++counters_.contributions;
  set_range(seen(header.slot), header.worker, 1);
  look_ahead(round, datagram);
  is_added_at_once(header) ? add(round, datagram) : keep(datagram);
  round.header.present |= header.present;
  if (--slot.missing != 0) return;
  std::memset(seen(header.slot), 0, bitmap_words(pool_.workers) * sizeof(std::uint64_t));
  round.header.worker = header.worker;
  finish(round);
  of_parent_ ? pass(round, out) : complete(round, out);
}

void SlotAggregator::complete(Round& round, std::vector<Outgoing>& out) {
  round.move(RoundStep::finish);
  ++counters_.results;
  out.push_back({kEveryWorker, written(round, wire::DatagramKind::result)});
}

// Keeps the least next block of all workers, and the largest exponent that comes with it.
void SlotAggregator::look_ahead(Round& round, const wire::Datagram& datagram) {
  for (std::size_t c = 0; c < datagram.header.columns; ++c) {
    const wire::ColumnRecord& theirs = datagram.columns[c];
    wire::ColumnRecord& ours = round.columns[c];
    if (theirs.next < ours.next) ours = theirs;
    if (theirs.next == ours.next) ours.exponent = std::max(ours.exponent, theirs.exponent);
  }
}

// --- What is lost ---

void SlotAggregator::on_duplicate(const wire::Datagram& datagram, std::vector<Outgoing>& out) {
  const wire::DatagramHeader& header = datagram.header;
  Slot& slot = slots_[header.slot];
  Round& round = slot.rounds[header.round % 2];
  ++counters_.duplicates;
  switch (round.state) {
    case RoundState::adding:
      return recall(slot.rounds[(header.round + 1) % 2], header, out);
    case RoundState::waiting:
      slot.urged = header.worker;
      return pass_again(round, out);
    case RoundState::complete:
      ++counters_.resent;
      return out.push_back({header.worker, written(round, wire::DatagramKind::result)});
    case RoundState::blank:
      return;
  }
}

// Sends the last result to workers that have not contributed to the round after it, in case that
// they lack it. If there is no last result, they get an empty one.
void SlotAggregator::recall(const Round& last, const wire::DatagramHeader& model,
                            std::vector<Outgoing>& out) {
  std::span<std::byte> datagram;
  if (last.state == RoundState::complete) {
    datagram = written(last, wire::DatagramKind::recall);
  } else {
    wire::DatagramHeader header = model;
    header.kind = wire::DatagramKind::recall;
    header.round = last.header.round;
    header.columns = 1;
    header.present = 0;
    const wire::ColumnRecord none;
    datagram = std::span(blank_).first(wire::encode(header, {&none, 1}, blank_));
  }
  const std::uint64_t* const have = seen(model.slot);
  for (std::size_t worker = find_bit(have, 0, pool_.workers, false); worker < pool_.workers;
       worker = find_bit(have, worker + 1, pool_.workers, false)) {
    ++counters_.recalls;
    out.push_back({static_cast<std::uint16_t>(worker), datagram});
  }
}

std::span<std::byte> SlotAggregator::written(const Round& round, wire::DatagramKind kind) {
  wire::DatagramHeader header = round.header;
  header.kind = kind;
  if (kind == wire::DatagramKind::contribution) header.worker = *of_parent_;
  std::byte* const memory = memory_of(header);
  const std::span<std::byte> out(memory, datagram_room(pool_));
  return out.first(wire::encode(header, {round.columns, header.columns}, out));
}

// --- Sums ---

// Each column has its place, until it is known which columns have a block.
void SlotAggregator::add(Round& round, const wire::Datagram& datagram) {
  const wire::DatagramHeader& header = datagram.header;
  std::byte* const sums = memory_of(header) + wire::datagram_head(header.columns);
  const std::byte* values = datagram.values.data();
  for (std::size_t c = 0; c < header.columns; ++c) {
    if (!datagram.has(c)) continue;
    std::byte* const sum = sums + c * header.block_bytes();
    if ((round.header.present >> c & 1) == 0) {
      std::memcpy(sum, values, header.block_bytes());
    } else {
      kernels().add(sum, values, header.block, header.dtype, header.op);
    }
    values += header.block_bytes();
  }
}

void SlotAggregator::keep(const wire::Datagram& datagram) {
  const wire::DatagramHeader& header = datagram.header;
  present_[std::size_t{header.slot} * pool_.workers + header.worker] = header.present;
  std::memcpy(kept(header.slot, header.worker), datagram.values.data(), datagram.values.size());
}

// Leaves the sums of the columns that have a block one after the other.
void SlotAggregator::finish(Round& round) {
  const wire::DatagramHeader& header = round.header;
  std::byte* const sums = memory_of(header) + wire::datagram_head(header.columns);
  std::byte* to = sums;
  for (std::size_t c = 0; c < header.columns; ++c) {
    if ((header.present >> c & 1) == 0) continue;
    std::byte* const place = sums + c * header.block_bytes();
    if (!is_added_at_once(header)) {
      add_up(round, c, to);
    } else if (to != place) {
      std::memmove(to, place, header.block_bytes());
    }
    to += header.block_bytes();
  }
}

// As the stream adds dense segments: from +0.0 on, in rank order, half types in float32.
void SlotAggregator::add_up(const Round& round, std::size_t column, std::byte* out) {
  const wire::DatagramHeader& header = round.header;
  const bool is_final = accumulator_of(header.dtype) == header.dtype;
  std::byte* const sums = is_final ? out : reinterpret_cast<std::byte*>(sums_.data());
  bool is_first = true;
  for (std::uint16_t worker = 0; worker < pool_.workers; ++worker) {
    const unsigned present = present_[std::size_t{header.slot} * pool_.workers + worker];
    if ((present >> column & 1) == 0) continue;
    const auto before =
        static_cast<std::size_t>(__builtin_popcount(present & ((1u << column) - 1)));
    const std::byte* const values = kept(header.slot, worker) + before * header.block_bytes();
    const auto step = std::exchange(is_first, false) ? kernels().start : kernels().add;
    step(sums, values, header.block, header.dtype, header.op);
  }
  if (is_final && header.op != ReduceOp::avg) return;
  // The root makes the average.
  const std::uint32_t ranks = of_parent_ ? 1 : pool_.ranks();
  kernels().finish(out, sums, header.block, header.dtype, header.op,
                   static_cast<std::int32_t>(ranks));
}

}  // namespace sparsewire::proto
