// A sparse output that several lanes write to at once. The lock is held only to keep results;
// payloads are copied before. One lane at a time makes the list while the others go on.
#pragma once

#include <mutex>

#include "proto/sparse/sparse_output.hpp"

namespace sparsewire::comm {

class SharedOutput final : public proto::PartSink {
 public:
  explicit SharedOutput(proto::SparseOutput& output) : output_(output) {}

  std::byte* place(std::uint64_t chunk, std::size_t size) override {
    return output_.place(chunk, size);
  }

  Status write(std::uint64_t chunk, const proto::Segment& segment) override {
    proto::Segment owned = segment;
    owned.payload = segment.payload.owned();
    const std::lock_guard lock(mutex_);
    return output_.write(chunk, owned);
  }

  Status write_packed(const wire::Piece& piece, const proto::ChunkRange& range) override {
    const std::lock_guard lock(mutex_);
    return output_.write_packed(piece, range);
  }

  void pass(const proto::ChunkRange& range) override {
    std::unique_lock lock(mutex_);
    output_.note(range);
    while (auto batch = output_.claim()) {
      lock.unlock();
      output_.list(*batch);
      lock.lock();
      output_.settle();
    }
  }

 private:
  proto::SparseOutput& output_;
  std::mutex mutex_;
};

}  // namespace sparsewire::comm
