// Walks parts through their schedules.
#include "proto/exchange/exchange.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/kernels.hpp"
#include "wire/packed_rows.hpp"

namespace sparsewire::proto {
namespace {

// Parts on their way at once, for each rank that may keep some: enough that every keeper has others
// to add while one is on the wire, few enough to bound the memory of parts that wait.
constexpr std::uint64_t kPartsPerRank = 4;

// The slice of the caller's vector that a list covers, with indices from 0.
SparseTensor slice_of(const SparseTensor& tensor, std::uint64_t begin, std::uint64_t end) {
  SparseTensor slice = tensor;
  const std::uint64_t row = tensor.descriptor.row;
  const std::uint64_t first = lower_bound(tensor, 0, begin / row);
  slice.named = lower_bound(tensor, first, end / row) - first;
  slice.indices =
      with_indices(tensor, [&](const auto* indices) -> const void* { return indices + first; });
  slice.values = tensor.values + first * tensor.row_bytes();
  slice.base = begin / row;
  slice.descriptor.count = end - begin;
  return slice;
}

Segment widened(const Segment& segment, const BlockLayout& layout, DType dtype, DType to) {
  if (dtype == to) return segment;
  return converted(segment, layout, to,
                   [&](std::byte* out, const std::byte* in, std::size_t count) {
                     kernels().start(out, in, count, dtype, ReduceOp::sum);
                   });
}

wire::Piece widened(const wire::Piece& packed, const ChunkRange& range, DType dtype, DType to) {
  if (dtype == to) return packed;
  Scratch scratch;
  return add_packed({read_packed_again(packed, range)}, dtype, {to, ReduceOp::sum, 1}, range,
                    scratch);
}

}  // namespace

Exchange::Exchange(const PartPlan& plan, const SparseTensor& tensor, std::vector<PartSink*> sinks,
                   const Costs& costs, LaneShare share)
    : plan_(plan), tensor_(tensor), sinks_(std::move(sinks)), adder_(plan_, costs), share_(share) {
  for (std::uint64_t part = 0; part < plan_.parts(); ++part) own_parts_ += is_mine(part) ? 1 : 0;
}

Exchange::Pieces Exchange::Part::take_message(Rank from) {
  auto& messages = inboxes.at(from).whole;
  Pieces message = std::move(messages.front());
  messages.pop_front();
  return message;
}

Result<bool> Exchange::start_next(Outgoings& out) {
  const auto of_all = kPartsPerRank * static_cast<std::uint64_t>(plan_.world_size());
  const std::uint64_t most = ceil_div(of_all, std::uint64_t{share_.lanes});
  if (parts_started_ == own_parts_ || parts_started_ - parts_finished_ >= most) return false;
  while (!is_mine(next_part_)) ++next_part_;
  const std::uint64_t number = next_part_++;
  ++parts_started_;
  Part& part = parts_[number];
  part.schedule = plan_.schedule(number);
  part.is_started = true;
  if (plan_.contributes(number)) part.held = own_pieces(number);
  if (Status error = advance(number, part, out)) return *std::move(error);
  return true;
}

Exchange::Pieces Exchange::own_pieces(std::uint64_t number) {
  const std::uint64_t list = plan_.list_of(number);
  const ChunkGrid grid = plan_.grid(list);
  if (!splitter_ || splitting_ != list) {
    slice_ = slice_of(tensor_, plan_.begin(list), plan_.end(list));
    splitter_ = std::make_unique<Splitter>(slice_, grid);
    splitting_ = list;
  }
  const ChunkRange range = plan_.range_of(number);
  const std::uint64_t row = tensor_.descriptor.row;
  const std::uint64_t first = lower_bound(slice_, 0, range.first * grid.chunk_elements / row);
  const std::uint64_t last = lower_bound(slice_, first, range.end * grid.chunk_elements / row);
  if (first == last) return {};
  const DType dtype = tensor_.descriptor.dtype;
  const DType to = plan_.partial_dtype();
  if (row == 1 && suits_packing(last - first, range)) {
    return {widened(pack_elements(slice_, first, last, grid, range), range, dtype, to)};
  }
  Pieces pieces;
  splitter_->seek(first);
  for (auto at = splitter_->next_row(); at && *at < range.end; at = splitter_->next_row()) {
    Segment segment = *std::move(splitter_->split(*at).front());
    segment = widened(segment, grid.layout(*at), dtype, to);
    pieces.push_back({*at, segment.format, segment.codec, std::move(segment.payload)});
  }
  return pieces;
}

Status Exchange::on_part(Rank from, const wire::FrameHeader& header, const Bytes& payload,
                         Outgoings& out) {
  const std::uint64_t number = header.chunk;
  if (number >= plan_.parts()) return protocol_error("part: its number is out of range");
  if (!is_mine(number)) return protocol_error("part: another lane carries it");
  Part& part = parts_[number];
  Inbox& inbox = part.inboxes[from];
  if (Status error = wire::decode_bundle(payload, inbox.arriving)) return error;
  if (Status error = check_chunks(number, inbox.arriving)) return error;
  if (Status error = restore_rows(number, inbox.arriving)) return error;
  if (header.next != wire::kNoChunk) return {};
  inbox.whole.push_back(std::exchange(inbox.arriving, {}));
  return part.is_started ? advance(number, part, out) : Status{};
}

Status Exchange::check_chunks(std::uint64_t number, const Pieces& pieces) const {
  if (pieces.empty()) return {};
  const ChunkRange range = plan_.range_of(number);
  if (pieces.front().chunk < range.first || pieces.back().chunk >= range.end) {
    return protocol_error("part: a chunk of another part");
  }
  const bool has_packed = std::ranges::any_of(pieces, [](const wire::Piece& piece) {
    return piece.format == wire::Format::packed || piece.format == wire::Format::packed_rows;
  });
  if (has_packed && (pieces.size() > 1 || pieces.front().chunk != range.first)) {
    return protocol_error("part: packed coordinates must be all of it");
  }
  if (has_packed && plan_.call().descriptor.row != 1) {
    return protocol_error("part: packed coordinates of rows");
  }
  return {};
}

Status Exchange::restore_rows(std::uint64_t number, Pieces& pieces) const {
  for (wire::Piece& piece : pieces) {
    if (piece.format != wire::Format::packed_rows) continue;
    auto restored = wire::without_rows(piece, plan_.range_of(number).chunks(), plan_.call().unit);
    if (!restored) return restored.error();
    piece = *std::move(restored);
  }
  return {};
}

Exchange::Pieces Exchange::outgoing(std::uint64_t number, const Pieces& held) const {
  Pieces pieces = held;
  const std::uint32_t unit = plan_.call().unit;
  for (wire::Piece& piece : pieces) {
    if (unit == 1 || piece.format != wire::Format::packed) continue;
    piece = wire::with_rows(piece, plan_.range_of(number).chunks(), unit);
  }
  return pieces;
}

Status Exchange::advance(std::uint64_t number, Part& part, Outgoings& out) {
  for (; part.step < part.schedule.size(); ++part.step) {
    const Step& step = part.schedule[part.step];
    if (!is_ready(part, step)) return {};
    if (Status error = run(number, part, step, out)) return error;
  }
  if (Status error = deliver(number, part)) return error;
  parts_.erase(number);
  ++parts_finished_;
  return {};
}

bool Exchange::is_ready(const Part& part, const Step& step) const {
  if (step.kind == Step::Kind::send) return true;
  return std::ranges::all_of(step.ranks, [&](Rank rank) { return has_come(part, rank); });
}

bool Exchange::has_come(const Part& part, Rank rank) const {
  const auto at = part.inboxes.find(rank);
  return rank == plan_.rank() || (at != part.inboxes.end() && !at->second.whole.empty());
}

Status Exchange::run(std::uint64_t number, Part& part, const Step& step, Outgoings& out) {
  if (step.kind == Step::Kind::send) {
    send(number, part, step, out);
    return {};
  }
  if (step.kind == Step::Kind::add) return add(number, part, step);
  part.held = part.take_message(step.ranks.front());
  part.is_complete = true;
  part.is_taken = true;
  return {};
}

void Exchange::send(std::uint64_t number, Part& part, const Step& step, Outgoings& out) {
  if (!part.is_taken && step.label != kNoRank) encode(number, part, step.label);
  if (step.ranks.empty()) return;
  const Pieces pieces = outgoing(number, part.held);
  std::size_t first = 0;
  do {
    const Bytes bundle = wire::encode_bundle(pieces, first);
    const bool is_last = first == pieces.size();
    const wire::FrameHeader header{.kind = wire::FrameKind::part,
                                   .seq = plan_.seq(),
                                   .chunk = number,
                                   .next = is_last ? wire::kNoChunk : number};
    for (const Rank to : step.ranks) out.push_back({to, wire::message_of(header, bundle)});
  } while (first < pieces.size());
}

// From here on this rank, too, holds the values that others get: all must add the same values.
void Exchange::encode(std::uint64_t number, Part& part, Rank label) {
  const wire::Descriptor& descriptor = plan_.call().descriptor;
  const Codec codec = part.is_complete ? descriptor.result_codec : descriptor.segment_codec;
  if (codec == Codec::raw) return;
  const ChunkGrid grid = plan_.grid_of(number, part.is_complete);
  for (wire::Piece& piece : part.held) {
    const std::uint64_t key = rounding_key(descriptor.seed, plan_.seq(), label, piece.chunk);
    if (piece.format == wire::Format::packed) {
      piece = encode_packed(piece, codec, plan_.range_of(number), key);
      continue;
    }
    const Segment encoded = encode_segment(segment_of(piece), codec, grid.layout(piece.chunk), key);
    piece.codec = encoded.codec;
    piece.payload = encoded.payload;
  }
}

Status Exchange::add(std::uint64_t number, Part& part, const Step& step) {
  std::vector<Held> all;
  for (const Rank rank : step.ranks) {
    all.push_back(
        {rank, rank == plan_.rank() ? std::exchange(part.held, {}) : part.take_message(rank)});
  }
  auto sum = adder_.add(number, std::move(all), step.completes);
  if (!sum) return sum.error();
  part.held = *std::move(sum);
  part.is_complete = step.completes;
  return {};
}

Status Exchange::deliver(std::uint64_t number, const Part& part) {
  if (!plan_.receives(number)) return {};
  PartSink* const sink = sinks_[plan_.lists() == 1 ? 0 : plan_.list_of(number)];
  const ChunkRange range = plan_.range_of(number);
  for (const wire::Piece& piece : part.held) {
    if (Status error = sink->take(piece, range)) return error;
  }
  sink->pass(range);
  return {};
}

std::vector<Rank> Exchange::missing() const {
  std::set<Rank> missing;
  for (const auto& [number, part] : parts_) {
    if (!part.is_started) continue;
    for (const Rank rank : part.schedule[part.step].ranks) {
      if (!has_come(part, rank)) missing.insert(rank);
    }
  }
  return {missing.begin(), missing.end()};
}

}  // namespace sparsewire::proto
