// Keeps one stream per operation and owner, and hands out their messages in issue order.
#include "proto/stream/worker.hpp"

#include <array>

namespace sparsewire::proto {
namespace {

// Chunks read per call: enough to find the next non-zero chunk soon, few enough not to starve the
// connections meanwhile.
constexpr int kChunksPerLook = 16;

}  // namespace

WorkerStream::WorkerStream(std::uint64_t seq, const wire::Descriptor& descriptor,
                           const ChunkSequence& chunks, std::size_t window_bytes, Source& source,
                           Sink& sink)
    : seq_(seq),
      descriptor_(descriptor),
      chunks_(chunks),
      window_bytes_(window_bytes),
      source_(source),
      sink_(sink),
      cursor_(descriptor.count == 0 ? wire::kNoChunk : chunks.first) {}

std::optional<wire::Message> WorkerStream::poll() {
  if (sent_all() || !look_ahead()) return {};
  wire::Message message = hearing_ == Hearing::unheard ? open_message() : segment_message();
  count_in_flight(message);
  move(HearingStep::message);
  pending_ = std::move(ahead_);
  ahead_.reset();
  return message;
}

// True once the next non-zero chunk is found, or known not to exist.
bool WorkerStream::look_ahead() {
  for (int looked = 0; !ahead_ && cursor_ != wire::kNoChunk; ++looked) {
    if (looked == kChunksPerLook || !source_.knows(cursor_)) return false;
    const std::uint64_t chunk = cursor_;
    cursor_ = chunks_.after(chunk);
    if (auto segment = source_.segment(chunk)) {
      ahead_ = Ahead{chunk, *std::move(segment)};
    } else {
      ++chunks_empty_;
    }
  }
  return true;
}

wire::Message WorkerStream::open_message() const {
  std::array<std::byte, wire::kDescriptorBytes> payload;
  wire::encode(descriptor_, payload);
  return wire::message_of({.kind = wire::FrameKind::open, .seq = seq_, .next = ahead_chunk()},
                          Bytes::copy_of(payload));
}

wire::Message WorkerStream::segment_message() const {
  const Segment& segment = pending_->segment;
  return wire::message_of({.kind = wire::FrameKind::segment,
                           .format = segment.format,
                           .codec = segment.codec,
                           .seq = seq_,
                           .chunk = pending_->chunk,
                           .next = ahead_chunk()},
                          segment.payload);
}

void WorkerStream::count_in_flight(const wire::Message& message) {
  if (message.header.kind == wire::FrameKind::open) {
    bytes_in_flight_ += kOpenCost;
    return;
  }
  const std::size_t cost = segment_cost(message.payload.size(), window_bytes_);
  in_flight_.push_back({message.header.chunk, cost});
  bytes_in_flight_ += cost;
}

Status WorkerStream::check_order(const wire::FrameHeader& header) const {
  const auto in_stream = [&](std::uint64_t chunk) {
    return chunk == wire::kNoChunk || chunks_.contains(chunk);
  };
  if (hearing_ != Hearing::open) return protocol_error("result: none was due");
  if (expected_ && header.chunk != *expected_) return protocol_error("result: out of order");
  if (!in_stream(header.chunk) || !in_stream(header.next)) {
    return protocol_error("result: its chunk is not of this stream");
  }
  const bool is_early = pending_ && header.chunk == pending_->chunk;
  if (is_early || header.chunk > oldest_unanswered()) {
    return protocol_error("result: it comes before this rank's own values");
  }
  const bool has_values = header.format != wire::Format::empty;
  if (has_values != (header.chunk != wire::kNoChunk)) {
    return protocol_error("result: chunk and format do not fit");
  }
  return {};
}

Result<std::size_t> WorkerStream::on_result(const wire::FrameHeader& header, const Bytes& payload) {
  if (Status error = check_order(header)) return *std::move(error);
  if (header.format != wire::Format::empty) {
    const Segment segment{header.format, header.codec, payload};
    if (Status error = sink_.write(header.chunk, segment)) return *std::move(error);
  }
  expected_ = header.next;
  std::size_t released = release_up_to(header.chunk);
  if (header.next > oldest_unanswered()) {
    return protocol_error("result: a chunk that this rank contributes to is left out");
  }
  const bool is_last = header.next == wire::kNoChunk;
  move(is_last ? HearingStep::last_result : HearingStep::result);
  if (is_last) released += kOpenCost;
  bytes_in_flight_ -= released;
  return released;
}

std::uint64_t WorkerStream::oldest_unanswered() const {
  if (!in_flight_.empty()) return in_flight_.front().chunk;
  return pending_ ? pending_->chunk : wire::kNoChunk;
}

std::size_t WorkerStream::release_up_to(std::uint64_t chunk) {
  std::size_t released = 0;
  while (!in_flight_.empty() && in_flight_.front().chunk <= chunk) {
    released += in_flight_.front().bytes;
    in_flight_.pop_front();
  }
  return released;
}

std::byte* WorkerStream::place(const wire::FrameHeader& header) const {
  const bool is_plain = header.format == wire::Format::dense && header.codec == Codec::raw;
  if (!is_plain || check_order(header)) return nullptr;
  return sink_.place(header.chunk, header.payload);
}

// --- All operations ---

Worker::Worker(const wire::Topology& topology, std::uint32_t lane,
               std::optional<std::uint32_t> owner)
    : topology_(topology),
      lane_(lane),
      only_owner_(owner),
      first_(owner.value_or(0)),
      owners_(owner ? 1 : topology.owners),
      due_(owners_.size()) {}

// A Worker that talks to a single owner looks at that owner's chunks only: a rank may have a
// hundred of these Workers.
std::vector<std::uint32_t> Worker::owners_with_chunks(std::uint64_t seq,
                                                      const ChunkGrid& grid) const {
  if (!only_owner_) return owners_of(lane_, seq, grid, topology_);
  const bool is_empty = chunks_of(lane_, first_, seq, grid, topology_).empty();
  return std::vector<std::uint32_t>(is_empty ? 0 : 1, first_);
}

bool Worker::submit(std::uint64_t seq, const wire::Descriptor& descriptor, const ChunkGrid& grid,
                    std::unique_ptr<Source> source, std::shared_ptr<Sink> sink) {
  Operation operation{.source = std::move(source), .sink = std::move(sink), .streams = {}};
  for (const std::uint32_t owner : owners_with_chunks(seq, grid)) {
    operation.streams.try_emplace(owner, seq, descriptor,
                                  chunks_of(lane_, owner, seq, grid, topology_),
                                  topology_.window_bytes, *operation.source, *operation.sink);
    due_.insert(owner - first_);
  }
  if (operation.streams.empty()) return false;
  operation.unfinished = operation.streams.size();
  operations_.emplace(seq, std::move(operation));
  return true;
}

WorkerStream* Worker::next_to_send(std::uint32_t owner) {
  Sending& sending = sending_to(owner);
  for (auto at = operations_.lower_bound(sending.next); at != operations_.end(); ++at) {
    WorkerStream* const stream = at->second.to(owner);
    if (stream && !stream->sent_all()) return stream;
    sending.next = at->first + 1;
  }
  return nullptr;
}

bool Worker::has_work(std::uint32_t owner) {
  if (!due_.contains(owner - first_)) return false;
  const bool has_room = sending_to(owner).in_flight < topology_.window_bytes;
  const WorkerStream* const stream = has_room ? next_to_send(owner) : nullptr;
  if (!stream) due_.erase(owner - first_);
  return stream && !stream->waits();
}

std::uint32_t Worker::next_with_work(std::uint32_t from) {
  const auto next = [this](std::uint32_t owner) {
    return first_ + static_cast<std::uint32_t>(due_.next(owner - first_));
  };
  std::uint32_t owner = next(from);
  while (owner < first_ + owners_.size() && !has_work(owner)) owner = next(owner + 1);
  return owner;
}

std::optional<wire::Message> Worker::poll(std::uint32_t owner) {
  if (!has_work(owner)) return {};
  WorkerStream* stream = next_to_send(owner);
  const std::size_t before = stream->bytes_in_flight();
  auto message = stream->poll();
  sending_to(owner).in_flight += stream->bytes_in_flight() - before;
  if (message) message->header.owner = static_cast<std::uint16_t>(owner);
  return message;
}

Result<bool> Worker::on_result(std::uint32_t owner, const wire::FrameHeader& header,
                               const Bytes& payload) {
  // If the operation failed here meanwhile, its results are of no use any more.
  const auto at = operations_.find(header.seq);
  WorkerStream* const stream = at == operations_.end() ? nullptr : at->second.to(owner);
  if (!stream) return false;
  const auto released = stream->on_result(header, payload);
  if (!released) return released.error();
  sending_to(owner).in_flight -= *released;
  due_.insert(owner - first_);
  if (stream->hearing() != Hearing::finished) return false;

  chunks_empty_ += stream->chunks_empty();
  if (--at->second.unfinished != 0) return false;
  operations_.erase(at);
  return true;
}

std::byte* Worker::place(std::uint32_t owner, const wire::FrameHeader& header) const {
  const auto at = operations_.find(header.seq);
  if (at == operations_.end()) return nullptr;
  const auto stream = at->second.streams.find(owner);
  return stream == at->second.streams.end() ? nullptr : stream->second.place(header);
}

bool Worker::drop(std::uint64_t seq) {
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return false;
  for (const auto& [owner, stream] : at->second.streams) {
    sending_to(owner).in_flight -= stream.bytes_in_flight();
    due_.insert(owner - first_);
  }
  operations_.erase(at);
  return true;
}

std::vector<std::uint32_t> Worker::waiting_for(std::uint64_t seq) const {
  std::vector<std::uint32_t> owners;
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return owners;
  for (const auto& [owner, stream] : at->second.streams) {
    if (stream.hearing() != Hearing::finished) owners.push_back(owner);
  }
  return owners;
}

std::vector<std::uint32_t> Worker::opened(std::uint64_t seq) const {
  std::vector<std::uint32_t> owners;
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return owners;
  for (const auto& [owner, stream] : at->second.streams) {
    if (stream.hearing() == Hearing::open) owners.push_back(owner);
  }
  return owners;
}

}  // namespace sparsewire::proto
