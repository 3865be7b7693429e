// One submitted collective, shared by the caller who waits and the lanes that work on it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "comm/progress_thread.hpp"
#include "proto/sparse/outputs.hpp"
#include "proto/sparse/sparse_tensor.hpp"
#include "wire/join.hpp"

namespace sparsewire::comm {

class Operation {
 public:
  // The input is dense, at `source`, or sparse. A dense one writes its result to `target`; a sparse
  // one too where `target` is not null, and keeps it in its outputs otherwise.
  struct Arguments {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    wire::Join join;  // what is to be done; for dense input only its descriptor counts
    proto::SparseTensor tensor = {};
    wire::ResultForm form = wire::ResultForm::sparse;  // that the caller wants of results it keeps
    Clock::time_point deadline = Clock::time_point::max();

    const wire::Descriptor& descriptor() const { return join.descriptor; }
  };

  Operation(std::uint64_t seq, const Arguments& arguments, bool leaves_out_zeros)
      : seq_(seq),
        arguments_(arguments),
        leaves_out_zeros_(leaves_out_zeros),
        stream_descriptor_(arguments.descriptor()),
        outputs_(arguments.descriptor(), arguments.target, lists_of(arguments)) {
    stream_descriptor_.is_striped = stream_descriptor_.is_sparse;
  }

  std::uint64_t seq() const { return seq_; }
  const Arguments& arguments() const { return arguments_; }
  bool leaves_out_zeros() const { return leaves_out_zeros_; }

  // Of sparse input.
  proto::Outputs& outputs() { return outputs_; }

  // What the operation is as a stream. Sparse input is dealt out by stripes, unless all ranks found
  // that it is even.
  const wire::Descriptor& stream_descriptor() const { return stream_descriptor_; }
  void leave_out_stripes() { stream_descriptor_.is_striped = false; }

  // Where results of a stream go; opened once, before the first lane gets the operation.
  void open_stream(const proto::ChunkGrid& grid);
  std::shared_ptr<proto::Sink> stream_sink() const { return stream_sink_; }

  // Blocks until the end, or for so long; true where it has ended.
  bool wait(std::optional<std::chrono::nanoseconds> patience) const;
  bool ended() const;

  // Only after the end.
  Status failure() const;

  // Releases every waiter. Called once.
  void end(Status failure);

 private:
  static proto::Lists lists_of(const Arguments& arguments);

  const std::uint64_t seq_;
  const Arguments arguments_;
  const bool leaves_out_zeros_;
  wire::Descriptor stream_descriptor_;
  proto::Outputs outputs_;
  std::shared_ptr<proto::Sink> stream_sink_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> ended_ = false;  // read without the lock, which a fork may leave locked
  Status failure_;
};

}  // namespace sparsewire::comm
