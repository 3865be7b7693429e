// Keeps one stream per operation and owner, and hands out their messages in issue order.
#include "proto/stream/worker.hpp"

namespace sparsewire::proto {

Worker::Worker(const wire::Topology& topology, std::uint32_t lane)
    : topology_(topology), lane_(lane), owners_(topology.owners) {}

bool Worker::submit(std::uint64_t seq, const wire::Descriptor& descriptor, const ChunkGrid& grid,
                    std::unique_ptr<Source> source, std::shared_ptr<Sink> sink) {
  Operation operation{.source = std::move(source), .sink = std::move(sink), .streams = {}};
  operation.streams.resize(topology_.owners);
  for (std::uint32_t owner = 0; owner < topology_.owners; ++owner) {
    const ChunkSequence chunks = chunks_of(lane_, owner, seq, grid, topology_);
    if (chunks.empty()) continue;
    operation.streams[owner] = std::make_unique<WorkerStream>(
        seq, descriptor, chunks, topology_.window_bytes, *operation.source, *operation.sink);
    ++operation.unfinished;
  }
  if (operation.unfinished == 0) return false;
  operations_.emplace(seq, std::move(operation));
  return true;
}

WorkerStream* Worker::stream_of(std::uint64_t seq, std::uint32_t owner) const {
  const auto at = operations_.find(seq);
  return at == operations_.end() ? nullptr : at->second.streams[owner].get();
}

WorkerStream* Worker::next_to_send(std::uint32_t owner) {
  Sending& sending = owners_[owner];
  for (auto at = operations_.lower_bound(sending.next); at != operations_.end(); ++at) {
    WorkerStream* stream = at->second.streams[owner].get();
    if (stream && !stream->sent_all()) return stream;
    sending.next = at->first + 1;
  }
  return nullptr;
}

bool Worker::has_work(std::uint32_t owner) {
  return owners_[owner].in_flight < topology_.window_bytes && next_to_send(owner);
}

std::optional<wire::Message> Worker::poll(std::uint32_t owner) {
  if (!has_work(owner)) return {};
  WorkerStream* stream = next_to_send(owner);
  const std::size_t before = stream->bytes_in_flight();
  auto message = stream->poll();
  owners_[owner].in_flight += stream->bytes_in_flight() - before;
  return message;
}

Result<bool> Worker::on_result(std::uint32_t owner, const wire::FrameHeader& header,
                               const Bytes& payload) {
  WorkerStream* stream = stream_of(header.seq, owner);
  // An operation that failed here meanwhile: its results are of no use any more.
  if (!stream) return false;
  const auto released = stream->on_result(header, payload);
  if (!released) return released.error();
  owners_[owner].in_flight -= *released;
  if (!stream->finished()) return false;

  chunks_empty_ += stream->chunks_empty();
  const auto at = operations_.find(header.seq);
  if (--at->second.unfinished != 0) return false;
  operations_.erase(at);
  return true;
}

std::byte* Worker::place(std::uint32_t owner, const wire::FrameHeader& header) const {
  const WorkerStream* stream = stream_of(header.seq, owner);
  return stream ? stream->place(header) : nullptr;
}

bool Worker::drop(std::uint64_t seq) {
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return false;
  for (std::uint32_t owner = 0; owner < topology_.owners; ++owner) {
    if (const auto& stream = at->second.streams[owner]) {
      owners_[owner].in_flight -= stream->bytes_in_flight();
    }
  }
  operations_.erase(at);
  return true;
}

std::vector<std::uint32_t> Worker::waiting_for(std::uint64_t seq) const {
  std::vector<std::uint32_t> owners;
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return owners;
  for (std::uint32_t owner = 0; owner < topology_.owners; ++owner) {
    const auto& stream = at->second.streams[owner];
    if (stream && !stream->finished()) owners.push_back(owner);
  }
  return owners;
}

}  // namespace sparsewire::proto
