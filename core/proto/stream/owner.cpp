// Keeps, per operation, each rank's announced next chunk and the segments that wait for the rest.
#include "proto/stream/owner.hpp"

#include <algorithm>
#include <utility>

#include "wire/frame.hpp"

namespace sparsewire::proto {
namespace {

// Of results between two calls to pause(), when the connections get their turn: a few bytes of
// every rank may make the result of a whole chunk.
constexpr std::size_t kBurstBytes = 2u << 20;

wire::Message result_message(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                             Segment segment) {
  const wire::FrameHeader header{.kind = wire::FrameKind::result,
                                 .format = segment.format,
                                 .codec = segment.codec,
                                 .seq = seq,
                                 .chunk = chunk,
                                 .next = next};
  return wire::message_of(header, std::move(segment.payload));
}

}  // namespace

Owner::Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
             std::uint64_t reach)
    : topology_(topology),
      lane_(lane),
      owner_(owner),
      reach_(reach + topology.streams()),
      accounts_(topology.world_size) {}

bool Owner::Operation::all_have(Mark mark) const {
  return std::ranges::all_of(marks, [mark](std::uint8_t marks) { return marks & mark; });
}

Rank Owner::Operation::first_with(Mark mark) const {
  const auto at = std::ranges::find_if(marks, [mark](auto marks) { return marks & mark; });
  return at == marks.end() ? kNoRank : static_cast<Rank>(at - marks.begin());
}

const Owner::Operation* Owner::find(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  return at == operations_.end() ? nullptr : &at->second;
}

Owner::Operation& Owner::find_or_create(std::uint64_t seq) {
  auto [at, created] = operations_.try_emplace(seq);
  if (created) at->second.marks.resize(topology_.world_size);
  return at->second;
}

Status Owner::accepts(Rank rank, const wire::FrameHeader& header) const {
  if (header.seq > settled_up_to_ && header.seq - settled_up_to_ > reach_) {
    return protocol_error("sequence: operation " + std::to_string(header.seq) +
                          " is too far ahead of those that all ranks are done with");
  }
  switch (header.kind) {
    case wire::FrameKind::open:
      return may_open(rank, header.seq);
    case wire::FrameKind::segment:
      return may_contribute(rank, header);
    case wire::FrameKind::cancel:
    case wire::FrameKind::refuse:
      return may_settle(rank, header.seq, header.kind == wire::FrameKind::cancel);
    default:
      return protocol_error("owner: this kind of frame is not for an owner");
  }
}

Status Owner::may_open(Rank rank, std::uint64_t seq) const {
  if (seq < account(rank).opened_up_to) return protocol_error("open: operation opened before");
  if (account(rank).in_flight >= topology_.window_bytes) {
    return protocol_error("open: beyond the window");
  }
  const Operation* operation = find(seq);
  if (!operation || !operation->has(rank, cancelled)) return {};
  return protocol_error("open: operation cancelled before");
}

Status Owner::may_contribute(Rank rank, const wire::FrameHeader& header) const {
  const Operation* operation = find(header.seq);
  if (!operation) return protocol_error("segment: its operation is not open");
  if (operation->has(rank, cancelled)) {
    return protocol_error("segment: its operation was cancelled before");
  }
  if (operation->has_failed()) return {};
  if (!operation->has(rank, opened) ||
      header.chunk != operation->next[static_cast<std::size_t>(rank)]) {
    return protocol_error("segment: its chunk was not announced");
  }
  const wire::Descriptor& descriptor = operation->descriptor;
  if (!skips_zeros(descriptor.op) && header.format != wire::Format::dense) {
    return protocol_error("segment: this operation takes dense ones only");
  }
  if (account(rank).in_flight >= topology_.window_bytes) {
    return protocol_error("segment: beyond the window");
  }
  return check_next(descriptor, operation->chunks, header.chunk, header.next);
}

Status Owner::may_settle(Rank rank, std::uint64_t seq, bool is_cancel) const {
  const Operation* operation = find(seq);
  if (is_cancel && operation && operation->has(rank, cancelled)) {
    return protocol_error("cancel: sent twice");
  }
  const bool is_counted = operation && operation->has(rank, unsettled);
  if (is_counted || account(rank).unsettled < kMaxUnsettled) return {};
  return protocol_error("cancel: " + std::to_string(kMaxUnsettled) +
                        " failed operations wait for other ranks to catch up");
}

Status Owner::on_message(Rank rank, wire::Message message, Outbox& outbox) {
  const wire::FrameHeader& header = message.header;
  if (Status error = accepts(rank, header)) return error;
  switch (header.kind) {
    case wire::FrameKind::open: {
      const auto descriptor = wire::decode_descriptor(message.payload.view());
      return descriptor ? on_open(rank, header, *descriptor, outbox) : descriptor.error();
    }
    case wire::FrameKind::segment:
      return on_segment(rank, header, std::move(message.payload), outbox);
    case wire::FrameKind::cancel:
      on_cancel(rank, header.seq);
      return {};
    default:
      return wire::take_fault(
          message, [&](const Error& error) { on_refuse(rank, header.seq, error, outbox); });
  }
}

Status Owner::on_open(Rank rank, const wire::FrameHeader& header,
                      const wire::Descriptor& descriptor, Outbox& outbox) {
  account(rank).opened_up_to = header.seq + 1;
  Operation& operation = find_or_create(header.seq);
  if (operation.has_failed()) return {};

  const ChunkGrid grid = make_grid(descriptor, topology_);
  const ChunkSequence chunks = chunks_of(lane_, owner_, header.seq, grid, topology_);
  if (Status error = check_next(descriptor, chunks, wire::kNoChunk, header.next)) return error;
  account(rank).in_flight += kOpenCost;
  const bool is_first = operation.next.empty();
  if (!is_first && operation.descriptor != descriptor) {
    disagree(header.seq, operation, rank, descriptor, outbox);
  }
  operation.marks[static_cast<std::size_t>(rank)] |= opened;
  if (operation.has_failed()) return {};
  if (is_first) {
    operation.next.resize(topology_.world_size);
    operation.descriptor = descriptor;
    operation.grid = grid;
    operation.chunks = chunks;
  }
  operation.next[static_cast<std::size_t>(rank)] = header.next;
  if (operation.all_have(opened)) operation.move(OwnerStep::open_last);
  emit_complete(header.seq, operation, outbox);
  return {};
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
  Operation& operation = operations_.at(header.seq);
  if (operation.has_failed()) return {};
  const BlockLayout layout = operation.grid.layout(header.chunk);
  auto contribution = read_segment(rank, {header.format, header.codec, std::move(payload)}, layout);
  if (!contribution) return contribution.error();

  account(rank).in_flight += segment_cost(contribution->payload.size(), topology_.window_bytes);
  buffered_ += contribution->bytes();
  ++contributions_;
  operation.next[static_cast<std::size_t>(rank)] = header.next;
  operation.pending[header.chunk].push_back(*std::move(contribution));
  emit_complete(header.seq, operation, outbox);
  return {};
}

// Counts the operation among those that the rank has given up and others have not.
void Owner::settle(Rank rank, Operation& operation) {
  if (operation.has(rank, unsettled)) return;
  operation.marks[static_cast<std::size_t>(rank)] |= unsettled;
  ++account(rank).unsettled;
}

void Owner::on_cancel(Rank rank, std::uint64_t seq) {
  Operation& operation = find_or_create(seq);
  settle(rank, operation);
  // The rank's window counts the operation no more. Older ones may still wait for their open.
  if (operation.has(rank, opened)) account(rank).in_flight -= kOpenCost;
  operation.marks[static_cast<std::size_t>(rank)] &= static_cast<std::uint8_t>(~opened);
  operation.marks[static_cast<std::size_t>(rank)] |= cancelled;
  give_up(operation);
  if (operation.all_have(cancelled)) close(seq);
}

void Owner::on_refuse(Rank rank, std::uint64_t seq, const Error& error, Outbox& outbox) {
  Operation& operation = find_or_create(seq);
  settle(rank, operation);
  if (!operation.has_failed()) fail(seq, operation, error, outbox);
}

void Owner::fail(std::uint64_t seq, Operation& operation, const Error& error, Outbox& outbox) {
  outbox.push_back(wire::fault_message(wire::FrameKind::fail, error, seq));
  give_up(operation);
}

void Owner::give_up(Operation& operation) {
  if (!operation.has_failed()) operation.move(OwnerStep::fail);
  release(operation);
}

void Owner::disagree(std::uint64_t seq, Operation& operation, Rank rank,
                     const wire::Descriptor& descriptor, Outbox& outbox) {
  const Rank other = operation.first_with(opened);
  const auto says = [&](Rank who) {
    return "rank " + std::to_string(who) + " called " +
           wire::describe(who == rank ? descriptor : operation.descriptor);
  };
  const auto [a, b] = std::minmax(rank, other);
  fail(seq, operation, {ErrorCode::mismatch, b, "ranks disagree: " + says(a) + ", " + says(b)},
       outbox);
}

void Owner::release(Operation& operation) {
  for (const auto& [chunk, contributions] : operation.pending) give_back(contributions);
  operation.pending.clear();
}

void Owner::give_back(const std::vector<Contribution>& contributions) {
  for (const Contribution& contribution : contributions) {
    account(contribution.rank).in_flight -=
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
  const std::uint64_t announced = std::ranges::min(operation.next);
  auto& pending = operation.pending;
  if (announced == wire::kNoChunk && pending.empty()) {
    outbox.push_back(result_message(seq, wire::kNoChunk, wire::kNoChunk, {}));
  }
  while (!pending.empty() && pending.begin()->first < announced) {
    paused_ = made_ > kBurstBytes;
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

  const wire::Descriptor& descriptor = operation.descriptor;
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

std::optional<OwnerState> Owner::state(std::uint64_t seq) const {
  const Operation* operation = find(seq);
  return operation ? std::optional(operation->state) : std::nullopt;
}

std::vector<Rank> Owner::missing(std::uint64_t seq) const {
  const Operation* operation = find(seq);
  if (!operation) return {};
  const bool some_unopened = !operation->all_have(opened);
  std::vector<Rank> missing;
  for (std::size_t r = 0; r < accounts_.size(); ++r) {
    const auto rank = static_cast<Rank>(r);
    const bool is_missing =
        some_unopened ? !operation->has(rank, opened) : operation->next[r] != wire::kNoChunk;
    if (is_missing) missing.push_back(rank);
  }
  return missing;
}

}  // namespace sparsewire::proto
