// Waiting for, and ending, one operation.
#include "comm/operation.hpp"

#include <utility>

#include "comm/result_pool.hpp"

namespace sparsewire::comm {
namespace {

// Lets several lanes write to one sink.
class LockedSink final : public proto::Sink {
 public:
  explicit LockedSink(proto::Sink& sink) : sink_(sink) {}

  std::byte* place(std::uint64_t chunk, std::size_t size) override {
    return sink_.place(chunk, size);
  }
  Status write(std::uint64_t chunk, const proto::Segment& segment) override {
    const std::lock_guard lock(mutex_);
    return sink_.write(chunk, segment);
  }

 private:
  proto::Sink& sink_;
  std::mutex mutex_;
};

}  // namespace

void Operation::open_stream(const proto::ChunkGrid& grid) {
  stream_sink_ =
      std::make_shared<LockedSink>(*outputs_.open({{arguments_.descriptor().count, grid}}).front());
}

// Indices are as wide as those of the input, unless others may name what these have no numbers for.
proto::Lists Operation::lists_of(const Arguments& arguments) {
  const proto::SparseTensor& tensor = arguments.tensor;
  return {.is_wide = tensor.is_wide || tensor.positions() > INT32_MAX,
          .form = arguments.form,
          .allocate = [](std::size_t size) { return ResultPool::shared().allocate(size); }};
}

bool Operation::wait(std::optional<std::chrono::nanoseconds> patience) const {
  std::unique_lock lock(mutex_);
  const auto has_ended = [this] { return ended(); };
  if (patience) return changed_.wait_for(lock, *patience, has_ended);
  changed_.wait(lock, has_ended);
  return true;
}

bool Operation::ended() const { return ended_.load(std::memory_order_acquire); }

Status Operation::failure() const { return ended() ? failure_ : Status{}; }

void Operation::end(Status failure) {
  // Notified under the lock: a waiter may destroy the operation as soon as it sees the end.
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  ended_.store(true, std::memory_order_release);
  changed_.notify_all();
}

}  // namespace sparsewire::comm
