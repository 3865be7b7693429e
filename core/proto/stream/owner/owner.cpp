// Keeps, per operation, each rank's announced next chunk and the segments that wait for the rest.
#include "proto/stream/owner/owner.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "wire/frame.hpp"

namespace sparsewire::proto {
Owner::Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
             OwnerDuty duty)
    : topology_(topology),
      lane_(lane),
      owner_(owner),
      role_(duty.role),
      reach_(duty.reach + topology.streams()),
      all_cancel_(duty.all_cancel),
      burst_(duty.burst),
      speakers_(std::move(duty.speakers)),
      scratch_(duty.scratch ? std::move(duty.scratch) : std::make_shared<Scratch>()) {
  if (speakers_.empty()) {
    speakers_.resize(topology.world_size);
    std::iota(speakers_.begin(), speakers_.end(), 0);
  }
  accounts_.resize(speakers_.size());
}

std::optional<Owner::Speaker> Owner::speaker_of(Rank rank) const {
  const auto own = static_cast<Speaker>(rank);
  if (own < speakers_.size() && speakers_[own] == rank) return own;  // if all ranks speak
  const auto at = std::ranges::find(speakers_, rank);
  if (at == speakers_.end()) return {};
  return static_cast<Speaker>(at - speakers_.begin());
}

bool Owner::Operation::all_have(Mark mark) const {
  return std::ranges::all_of(marks, [mark](std::uint8_t marks) { return marks & mark; });
}

bool Owner::Operation::any_has(Mark mark) const {
  return std::ranges::any_of(marks, [mark](std::uint8_t marks) { return marks & mark; });
}

Owner::Speaker Owner::Operation::first_with(Mark mark) const {
  const auto at = std::ranges::find_if(marks, [mark](auto marks) { return marks & mark; });
  return static_cast<Speaker>(at - marks.begin());
}

// Most messages move one of many speakers, and complete no chunk.
bool Owner::Operation::announce(Speaker speaker, std::uint64_t chunk) {
  const std::uint64_t before = std::exchange(next[speaker], chunk);
  if (state != OwnerState::adding || before != announced || chunk == before) return false;
  if (--holding_up != 0) return false;
  find_announced();
  return true;
}

void Owner::Operation::find_announced() {
  announced = std::ranges::min(next);
  holding_up = static_cast<std::size_t>(std::ranges::count(next, announced));
}

const Owner::Operation* Owner::find(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  return at == operations_.end() ? nullptr : &at->second;
}

Owner::Operation& Owner::find_or_create(std::uint64_t seq) {
  auto [at, created] = operations_.try_emplace(seq);
  if (created) at->second.marks.resize(speakers_.size());
  return at->second;
}

Status Owner::on_message(Rank rank, wire::Message message, Outbox& outbox) {
  const wire::FrameHeader& header = message.header;
  if (Status error = accepts(rank, header)) return error;
  const Speaker speaker = *speaker_of(rank);
  switch (header.kind) {
    case wire::FrameKind::open: {
      const auto descriptor = wire::decode_descriptor(message.payload.view());
      return descriptor ? on_open(speaker, header, *descriptor, outbox) : descriptor.error();
    }
    case wire::FrameKind::segment:
      return on_segment(speaker, header, std::move(message.payload), outbox);
    case wire::FrameKind::cancel:
      on_cancel(speaker, header.seq);
      return {};
    default:
      return wire::take_fault(
          message, [&](const Error& error) { on_refuse(speaker, header.seq, error, outbox); });
  }
}

Status Owner::on_open(Speaker speaker, const wire::FrameHeader& header,
                      const wire::Descriptor& descriptor, Outbox& outbox) {
  accounts_[speaker].opened_up_to = header.seq + 1;
  Operation& operation = find_or_create(header.seq);
  const ChunkGrid grid = make_grid(descriptor, topology_);
  const ChunkSequence chunks = chunks_of(lane_, owner_, header.seq, grid, topology_);
  if (Status error = check_next(descriptor, chunks, wire::kNoChunk, header.next)) return error;
  accounts_[speaker].in_flight += kOpenCost;
  if (operation.has_failed()) {
    operation.marks[speaker] |= opened;
    return {};
  }
  const bool is_first = operation.next.empty();
  if (!is_first && operation.descriptor != descriptor) {
    disagree(header.seq, operation, speaker, descriptor, outbox);
  }
  operation.marks[speaker] |= opened;
  if (operation.has_failed()) return {};
  if (is_first) {
    operation.next.resize(speakers_.size());
    operation.descriptor = descriptor;
    operation.grid = grid;
    operation.chunks = chunks;
  }
  operation.announce(speaker, header.next);
  if (!operation.all_have(opened)) return {};
  operation.move(OwnerStep::open_last);
  operation.find_announced();
  if (role_ == OwnerRole::deputy) outbox.push_back(open_message(header.seq, operation));
  emit_complete(header.seq, operation, outbox);
  return {};
}

Status Owner::on_segment(Speaker speaker, const wire::FrameHeader& header, Bytes payload,
                         Outbox& outbox) {
  Operation& operation = operations_.at(header.seq);
  if (operation.has_failed()) return {};
  const BlockLayout layout = operation.grid.layout(header.chunk);
  auto contribution = read_segment(static_cast<Rank>(speaker),
                                   {header.format, header.codec, std::move(payload)}, layout);
  if (!contribution) return contribution.error();

  accounts_[speaker].in_flight +=
      segment_cost(contribution->payload.size(), topology_.window_bytes);
  buffered_ += contribution->bytes();
  ++contributions_;
  operation.pending[header.chunk].push_back(*std::move(contribution));
  if (operation.announce(speaker, header.next)) emit_complete(header.seq, operation, outbox);
  return {};
}

void Owner::release(Operation& operation) {
  for (const auto& [chunk, contributions] : operation.pending) give_back(contributions);
  operation.pending.clear();
}

void Owner::give_back(const std::vector<Contribution>& contributions) {
  for (const Contribution& contribution : contributions) {
    accounts_[static_cast<Speaker>(contribution.rank)].in_flight -=
        segment_cost(contribution.payload.size(), topology_.window_bytes);
    buffered_ -= contribution.bytes();
  }
  contributions_ -= contributions.size();
}

void Owner::close(std::uint64_t seq) {
  const Operation& operation = operations_.at(seq);
  for (std::size_t r = 0; r < accounts_.size(); ++r) {
    if (operation.marks[r] & opened) accounts_[r].in_flight -= kOpenCost;
    if (operation.marks[r] & unsettled) --accounts_[r].unsettled;
  }
  operations_.erase(seq);
  settled_up_to_ = std::max(settled_up_to_, seq + 1);
}

// A chunk is complete once every rank has announced a later one. The smallest announcement is also
// the next chunk that the union will hold, unless a segment that waits comes before it.
void Owner::emit_complete(std::uint64_t seq, Operation& operation, Outbox& outbox) {
  if (paused_ || operation.state != OwnerState::adding) return;
  const std::uint64_t announced = operation.announced;
  auto& pending = operation.pending;
  if (announced == wire::kNoChunk && pending.empty() && role_ == OwnerRole::root) {
    outbox.push_back(sum_message(seq, wire::kNoChunk, wire::kNoChunk, {}));
  }
  while (!pending.empty() && pending.begin()->first < announced) {
    paused_ = made_ > burst_;
    if (paused_) return;
    outbox.push_back(reduce_first(seq, operation, announced));
    made_ += outbox.back().payload.size();
  }
  if (announced == wire::kNoChunk) close(seq);
}

void Owner::pause(bool paused, Outbox& outbox) {
  if (paused == paused_) return;
  paused_ = paused;
  made_ = 0;
  for (auto at = operations_.begin(); at != operations_.end();) {
    const auto current = at++;  // The operation may close.
    emit_complete(current->first, current->second, outbox);
  }
}

wire::Message Owner::reduce_first(std::uint64_t seq, Operation& operation,
                                  std::uint64_t announced) {
  auto first = operation.pending.extract(operation.pending.begin());
  const std::uint64_t chunk = first.key();
  std::vector<Contribution>& contributions = first.mapped();
  std::ranges::sort(contributions, {}, &Contribution::rank);

  const wire::Descriptor& descriptor = operation.descriptor;
  const BlockLayout layout = operation.grid.layout(chunk);
  const Segment sum = reduce(contributions, reduction_of(descriptor), layout, *scratch_);
  give_back(contributions);
  const std::uint64_t next = first_announced(operation, announced);
  if (role_ == OwnerRole::deputy) return sum_message(seq, chunk, next, sum);
  return sum_message(seq, chunk, next,
                     encode_segment(sum, descriptor.result_codec, layout,
                                    rounding_key(descriptor.seed, seq, kNoRank, chunk)));
}

// Only the root divides averages, and makes results in the form that callers want.
Reduction Owner::reduction_of(const wire::Descriptor& descriptor) const {
  const bool is_root = role_ == OwnerRole::root;
  const bool is_share = !is_root && descriptor.op == ReduceOp::avg;
  const bool may_choose = !is_root && skips_zeros(descriptor.op);
  return {.dtype = descriptor.dtype,
          .op = is_share ? ReduceOp::sum : descriptor.op,
          .world_size = static_cast<std::int32_t>(topology_.world_size),
          .form = may_choose ? wire::ResultForm::cheapest : descriptor.form,
          .costs = costs_for(descriptor, costs_)};
}

std::uint64_t Owner::first_announced(const Operation& operation, std::uint64_t announced) {
  return operation.pending.empty() ? announced
                                   : std::min(announced, operation.pending.begin()->first);
}

wire::Message Owner::open_message(std::uint64_t seq, const Operation& operation) const {
  std::array<std::byte, wire::kDescriptorBytes> payload;
  wire::encode(operation.descriptor, payload);
  const std::uint64_t first = first_announced(operation, operation.announced);
  return wire::message_of({.kind = wire::FrameKind::open,
                           .owner = static_cast<std::uint16_t>(owner_),
                           .seq = seq,
                           .next = first},
                          Bytes::copy_of(payload));
}

wire::Message Owner::sum_message(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                                 Segment sum) const {
  const bool is_root = role_ == OwnerRole::root;
  return wire::message_of({.kind = is_root ? wire::FrameKind::result : wire::FrameKind::segment,
                           .format = sum.format,
                           .codec = sum.codec,
                           .owner = static_cast<std::uint16_t>(owner_),
                           .seq = seq,
                           .chunk = chunk,
                           .next = next},
                          std::move(sum.payload));
}

std::optional<OwnerState> Owner::state(std::uint64_t seq) const {
  const Operation* operation = find(seq);
  return operation ? std::optional(operation->state) : std::nullopt;
}

std::vector<Rank> Owner::missing(std::uint64_t seq) const {
  const Operation* operation = find(seq);
  if (!operation) return {};
  const bool some_unopened = !operation->all_have(opened);
  std::vector<Rank> missing;
  for (Speaker speaker = 0; speaker < speakers_.size(); ++speaker) {
    const bool is_missing = some_unopened ? !operation->has(speaker, opened)
                                          : operation->next[speaker] != wire::kNoChunk;
    if (is_missing) missing.push_back(speakers_[speaker]);
  }
  return missing;
}

}  // namespace sparsewire::proto
