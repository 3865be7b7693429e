// One owner or one worker on the bench, and messages to feed them with, right ones and wrong ones.
#pragma once

#include <doctest/doctest.h>

#include "proto/stream/owner/owner.hpp"
#include "proto/stream/worker.hpp"
#include "tensors.hpp"

namespace sparsewire::test {

using wire::Format;
using wire::FrameKind;
using wire::kNoChunk;

inline constexpr DType kFloat = DType::float32;

// Owner 0 of two; of a sum over four chunks it owns 0 and 2 where the sequence number is even.
inline constexpr wire::Topology kTopology{.world_size = 2, .lanes = 1, .owners = 2, .block = 256};
inline constexpr std::uint64_t kChunk = 8192;
inline constexpr wire::Descriptor kSum{kFloat, ReduceOp::sum, 4 * kChunk};
inline constexpr wire::Descriptor kMax{kFloat, ReduceOp::max, 4 * kChunk};
inline constexpr std::size_t kChunkBytes = kChunk * 4;

inline wire::Message message(wire::FrameHeader header, const Buffer& payload) {
  header.payload = static_cast<std::uint32_t>(payload.size());
  return {header, Bytes::copy_of(payload)};
}

inline wire::Message open(std::uint64_t seq, const wire::Descriptor& descriptor,
                          std::uint64_t next) {
  Buffer payload(wire::kDescriptorBytes);
  wire::encode(descriptor, std::span<std::byte, wire::kDescriptorBytes>(payload));
  return message({.kind = FrameKind::open, .seq = seq, .next = next}, payload);
}

inline wire::Message segment(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                             std::size_t bytes = kChunkBytes, Format format = Format::dense) {
  return message(
      {.kind = FrameKind::segment, .format = format, .seq = seq, .chunk = chunk, .next = next},
      Buffer(bytes));
}

inline wire::Message result(std::uint64_t chunk, std::uint64_t next,
                            std::size_t bytes = kChunkBytes) {
  const Format format = bytes == 0 ? Format::empty : Format::dense;
  return message({.kind = FrameKind::result, .format = format, .chunk = chunk, .next = next},
                 Buffer(bytes));
}

inline wire::Message cancel(std::uint64_t seq) {
  return message({.kind = FrameKind::cancel, .seq = seq}, {});
}

inline bool is_violation(const Status& status) {
  return status && status->code == ErrorCode::protocol && !status->message.empty();
}

class OwnerBench {
 public:
  explicit OwnerBench(std::uint32_t window = 1u << 22) : owner_(with_window(window), 0, 0) {}

  Status send(Rank rank, wire::Message message) {
    return owner_.on_message(rank, std::move(message), outbox_);
  }
  bool takes(Rank rank, wire::Message message) { return !send(rank, std::move(message)); }
  bool refuses(Rank rank, wire::Message message) {
    return is_violation(send(rank, std::move(message)));
  }
  void pause(bool paused) { owner_.pause(paused, outbox_); }
  const proto::Owner& owner() const { return owner_; }
  const proto::Owner::Outbox& outbox() const { return outbox_; }

 private:
  static wire::Topology with_window(std::uint32_t window) {
    wire::Topology topology = kTopology;
    topology.window_bytes = window;
    return topology;
  }

  proto::Owner owner_;
  proto::Owner::Outbox outbox_;
};

// Rank 0's worker half with one operation; what it sends to owner 0 is chunks 0 and 2.
class WorkerBench {
 public:
  explicit WorkerBench(int polls, const wire::Descriptor& descriptor = kSum)
      : tensor_(Buffer(descriptor.count * 4, std::byte{1}), true), worker_(kTopology, 0) {
    const proto::ChunkGrid grid = proto::make_grid(descriptor, kTopology);
    const proto::DenseTensor dense{tensor_.source(), tensor_.out(), descriptor, grid};
    REQUIRE(worker_.submit(0, descriptor, grid, source_of(dense),
                           std::make_unique<proto::DenseSink>(dense)));
    for (int i = 0; i < polls; ++i) REQUIRE(worker_.poll(0));
  }

  bool takes(const wire::Message& message) { return static_cast<bool>(give(message)); }
  bool refuses(const wire::Message& message) {
    CHECK_FALSE(worker_.place(0, message.header));
    const auto outcome = give(message);
    return !outcome && is_violation(outcome.error());
  }

  proto::Worker& worker() { return worker_; }

 private:
  Result<bool> give(const wire::Message& message) {
    return worker_.on_result(0, message.header, message.payload);
  }

  RankTensor tensor_;
  proto::Worker worker_;
};

}  // namespace sparsewire::test
