// Keeps, per operation, each rank's announced next chunk and the segments that wait for the rest.
#include "proto/stream/owner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "wire/fault.hpp"

namespace sparsewire::proto {
namespace {

wire::Message result_message(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                             Segment segment) {
  const wire::FrameHeader header{.kind = wire::FrameKind::result,
                                 .format = segment.format,
                                 .codec = segment.codec,
                                 .payload = static_cast<std::uint32_t>(segment.payload.size()),
                                 .seq = seq,
                                 .chunk = chunk,
                                 .next = next};
  return {header, std::move(segment.payload)};
}

}  // namespace

Owner::Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner)
    : topology_(topology),
      lane_(lane),
      owner_(owner),
      buffered_(topology.world_size),
      open_operations_(topology.world_size),
      opened_up_to_(topology.world_size) {}

Owner::Operation& Owner::find_or_create(std::uint64_t seq) {
  auto [at, created] = operations_.try_emplace(seq);
  if (created) at->second.ranks.resize(topology_.world_size);
  return at->second;
}

Status Owner::on_message(Rank rank, wire::Message message, Outbox& outbox) {
  const wire::FrameHeader& header = message.header;
  switch (header.kind) {
    case wire::FrameKind::open: {
      const auto descriptor = wire::decode_descriptor(message.payload.view());
      return descriptor ? on_open(rank, header, *descriptor, outbox) : descriptor.error();
    }
    case wire::FrameKind::segment:
      return on_segment(rank, header, std::move(message.payload), outbox);
    case wire::FrameKind::cancel:
      return on_cancel(rank, header.seq);
    case wire::FrameKind::refuse: {
      const auto fault = wire::decode_fault(message.payload.view());
      if (!fault) return fault.error();
      on_refuse(header.seq, fault->error, outbox);
      return {};
    }
    default:
      return protocol_error("owner: this kind of frame is not for an owner");
  }
}

Status Owner::on_open(Rank rank, const wire::FrameHeader& header,
                      const wire::Descriptor& descriptor, Outbox& outbox) {
  const auto r = static_cast<std::size_t>(rank);
  if (header.seq < opened_up_to_[r]) return protocol_error("open: operation opened before");
  if (open_operations_[r] * kOpenCost > topology_.window_bytes) {
    return protocol_error("open: too many operations at once");
  }
  opened_up_to_[r] = header.seq + 1;
  Operation& operation = find_or_create(header.seq);
  if (operation.ranks[r].cancelled) return protocol_error("open: operation cancelled before");
  if (operation.failed) return {};

  const ChunkGrid grid = make_grid(descriptor, topology_);
  const ChunkSequence chunks = chunks_of(lane_, owner_, header.seq, grid, topology_);
  if (Status error = check_next(descriptor, chunks, wire::kNoChunk, header.next)) return error;
  ++open_operations_[r];
  operation.ranks[r] = {.opened = true, .descriptor = descriptor, .next = header.next};
  operation.grid = grid;
  operation.chunks = chunks;
  if (const Rank other = first_disagreeing(operation, descriptor); other != kNoRank) {
    fail(header.seq, operation, std::min(rank, other), std::max(rank, other), outbox);
    return {};
  }
  emit_complete(header.seq, operation, outbox);
  return {};
}

Rank Owner::first_disagreeing(const Operation& operation, const wire::Descriptor& descriptor) {
  const auto at = std::ranges::find_if(operation.ranks, [&](const RankState& state) {
    return state.opened && state.descriptor != descriptor;
  });
  return at == operation.ranks.end() ? kNoRank : static_cast<Rank>(at - operation.ranks.begin());
}

// What a rank may announce behind chunk `after` (kNoChunk: at the start): any later chunk of the
// stream, or none; but the very next one where zeros may not be left out.
Status Owner::check_next(const wire::Descriptor& descriptor, const ChunkSequence& chunks,
                         std::uint64_t after, std::uint64_t next) {
  if (chunks.empty()) return protocol_error("open: the operation has no chunk in this stream");
  const bool at_start = after == wire::kNoChunk;
  if (skips_zeros(descriptor.op) || descriptor.count == 0) {
    if (next == wire::kNoChunk) return {};
    const bool is_later = at_start || next > after;
    if (descriptor.count != 0 && is_later && chunks.contains(next)) return {};
  } else if (next == (at_start ? chunks.first : chunks.after(after))) {
    return {};
  }
  return protocol_error("look-ahead: chunk " + std::to_string(next) + " cannot come next");
}

Status Owner::on_segment(Rank rank, const wire::FrameHeader& header, Bytes payload,
                         Outbox& outbox) {
  const auto r = static_cast<std::size_t>(rank);
  const auto at = operations_.find(header.seq);
  if (at == operations_.end()) return protocol_error("segment: its operation is not open");
  Operation& operation = at->second;
  if (operation.failed) return {};

  RankState& state = operation.ranks[r];
  if (!state.opened || header.chunk != state.next) {
    return protocol_error("segment: its chunk was not announced");
  }
  if (Status error = check_next(state.descriptor, operation.chunks, header.chunk, header.next)) {
    return error;
  }
  if (!skips_zeros(state.descriptor.op) && header.format != wire::Format::dense) {
    return protocol_error("segment: this operation takes dense ones only");
  }
  const BlockLayout layout = operation.grid.layout(header.chunk);
  auto contribution = read_segment(rank, {header.format, header.codec, std::move(payload)}, layout);
  if (!contribution) return contribution.error();
  if (buffered_[r] >
      std::max<std::size_t>(topology_.window_bytes, kSegmentsInWindow * wire::kMaxPayload)) {
    return protocol_error("segment: beyond the window");
  }

  buffered_[r] += contribution->bytes();
  state.next = header.next;
  operation.pending[header.chunk].push_back(*std::move(contribution));
  emit_complete(header.seq, operation, outbox);
  return {};
}

Status Owner::on_cancel(Rank rank, std::uint64_t seq) {
  Operation& operation = find_or_create(seq);
  RankState& state = operation.ranks[static_cast<std::size_t>(rank)];
  if (state.cancelled) return protocol_error("cancel: sent twice");
  state.cancelled = true;
  // The rank's window counts the operation no more. Older ones may still wait for their open.
  open_operations_[static_cast<std::size_t>(rank)] -= std::exchange(state.opened, false);
  operation.failed = true;
  release(operation);
  if (std::ranges::all_of(operation.ranks, &RankState::cancelled)) close(seq);
  return {};
}

void Owner::on_refuse(std::uint64_t seq, const Error& error, Outbox& outbox) {
  Operation& operation = find_or_create(seq);
  if (operation.failed) return;
  outbox.push_back(wire::fault_message(wire::FrameKind::fail, error, seq));
  operation.failed = true;
  release(operation);
}

void Owner::fail(std::uint64_t seq, Operation& operation, Rank a, Rank b, Outbox& outbox) {
  const auto says = [&](Rank rank) {
    return "rank " + std::to_string(rank) + " called " +
           wire::describe(operation.ranks[static_cast<std::size_t>(rank)].descriptor);
  };
  on_refuse(seq, {ErrorCode::mismatch, b, "ranks disagree: " + says(a) + ", " + says(b)}, outbox);
}

void Owner::release(Operation& operation) {
  for (const auto& [chunk, contributions] : operation.pending) give_back(contributions);
  operation.pending.clear();
}

void Owner::give_back(const std::vector<Contribution>& contributions) {
  for (const Contribution& contribution : contributions) {
    buffered_[static_cast<std::size_t>(contribution.rank)] -= contribution.bytes();
  }
}

void Owner::close(std::uint64_t seq) {
  const auto at = operations_.find(seq);
  for (std::size_t r = 0; r < open_operations_.size(); ++r) {
    open_operations_[r] -= at->second.ranks[r].opened;
  }
  operations_.erase(at);
}

// A chunk is complete once every rank has announced a later one. The smallest announcement is also
// the next chunk that the union will hold, unless a segment that waits comes before it.
void Owner::emit_complete(std::uint64_t seq, Operation& operation, Outbox& outbox) {
  if (paused_ || operation.failed) return;
  if (!std::ranges::all_of(operation.ranks, &RankState::opened)) return;
  const std::uint64_t announced = std::ranges::min(operation.ranks, {}, &RankState::next).next;
  auto& pending = operation.pending;
  if (announced == wire::kNoChunk && pending.empty()) {
    outbox.push_back(result_message(seq, wire::kNoChunk, wire::kNoChunk, {}));
  }
  while (!pending.empty() && pending.begin()->first < announced) {
    outbox.push_back(reduce_first(seq, operation, announced));
  }
  if (announced == wire::kNoChunk) close(seq);
}

void Owner::pause(bool paused, Outbox& outbox) {
  paused_ = paused;
  for (auto at = operations_.begin(); at != operations_.end();) {
    const auto current = at++;  // It may close.
    emit_complete(current->first, current->second, outbox);
  }
}

wire::Message Owner::reduce_first(std::uint64_t seq, Operation& operation,
                                  std::uint64_t announced) {
  auto first = operation.pending.extract(operation.pending.begin());
  const std::uint64_t chunk = first.key();
  std::vector<Contribution>& contributions = first.mapped();
  std::ranges::sort(contributions, {}, &Contribution::rank);

  const wire::Descriptor& descriptor = operation.ranks.front().descriptor;
  const BlockLayout layout = operation.grid.layout(chunk);
  const Segment sum = reduce(contributions,
                             {.dtype = descriptor.dtype,
                              .op = descriptor.op,
                              .world_size = static_cast<std::int32_t>(topology_.world_size),
                              .form = descriptor.form,
                              .costs = costs_for(descriptor, costs_)},
                             layout, scratch_);
  give_back(contributions);
  const std::uint64_t waiting =
      operation.pending.empty() ? wire::kNoChunk : operation.pending.begin()->first;
  return result_message(seq, chunk, std::min(announced, waiting),
                        encode_segment(sum, descriptor.result_codec, layout,
                                       rounding_key(descriptor.seed, seq, kNoRank, chunk)));
}

std::vector<Rank> Owner::missing(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return {};
  const auto& ranks = at->second.ranks;
  const bool some_unopened = !std::ranges::all_of(ranks, &RankState::opened);
  std::vector<Rank> missing;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const bool is_missing = some_unopened ? !ranks[r].opened : ranks[r].next != wire::kNoChunk;
    if (is_missing) missing.push_back(static_cast<Rank>(r));
  }
  return missing;
}

std::size_t Owner::buffered_bytes() const {
  return std::accumulate(buffered_.begin(), buffered_.end(), std::size_t{0});
}

}  // namespace sparsewire::proto
