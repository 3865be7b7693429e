// One submitted collective, shared by the caller that waits and the lanes that work on it: its
// input, how it is cut, the place of its results, and how it ended.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "comm/operations/shared_output.hpp"
#include "comm/progress/progress_thread.hpp"
#include "proto/slots/pool.hpp"
#include "proto/sparse/outputs.hpp"
#include "proto/sparse/sparse_tensor.hpp"
#include "proto/stream/dense.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::comm {

class LaneLog;

class Operation {
 public:
  // The input is dense, at `source`, or sparse. The result of dense input is written to `out`. That
  // of sparse input, too, if `out` is not null; otherwise it is kept in the outputs.
  struct Arguments {
    const std::byte* source = nullptr;
    std::byte* out = nullptr;
    wire::Call call;
    proto::SparseTensor tensor = {};
    Clock::time_point deadline = Clock::time_point::max();
    bool is_awaited = false;  // the caller waits for it at once, and works meanwhile
  };

  // Looks at the input, so it must be made before anything writes results.
  Operation(const Arguments& arguments, const wire::Topology& topology);

  // Sets the operation's number, before any other thread gets the operation.
  void issue(std::uint64_t seq) { seq_ = seq; }
  std::uint64_t seq() const { return seq_; }
  const Arguments& arguments() const { return arguments_; }

  // Why this input is of no use; none if it is good.
  const Status& bad_input() const { return bad_input_; }

  // Whether all ranks must join it first, because it may run as an exchange. All other operations
  // run as streams from the start, and with dedicated owners all do.
  bool needs_agreement() const;

  // The lane that has its first chunk or, if ranks must agree on it, the agreement. Of a small
  // operation, this lane has everything.
  std::uint32_t main_lane() const;

  // For sparse input.
  proto::Outputs& outputs() { return outputs_; }

  // The operation as a stream, and its cut into chunks. Sparse input is dealt out by stripes,
  // unless all ranks found that it is even.
  const wire::Descriptor& stream_descriptor() const { return descriptor_; }
  const proto::ChunkGrid& grid() const { return grid_; }
  void leave_out_stripes();

  // Makes the sink for results; called once, before the first lane gets the operation.
  void open_stream();
  const std::shared_ptr<proto::Sink>& sink() const { return sink_; }
  // The source of one lane of this rank; encoded() gives it the codec that was asked for.
  std::unique_ptr<proto::Source> source(std::uint32_t lane, const proto::Costs& costs,
                                        LaneLog* log = nullptr);
  // A dense operation, as slots see it.
  proto::SlotTensor slot_tensor(proto::Arithmetic arithmetic) const;
  std::unique_ptr<proto::Source> encoded(std::unique_ptr<proto::Source> source, Rank rank) const;

  // Elements of this rank's input that were given to send so far: of whole blocks, if these are
  // sent. None if it goes by datagrams, which are not counted.
  std::optional<std::uint64_t> named() const;
  void leave_uncounted() { is_counted_ = false; }

  // Blocks until the end, or for `patience`; true if it has ended.
  bool wait(std::optional<std::chrono::nanoseconds> patience) const;
  bool ended() const;

  // To be called only after the end.
  Status failure() const;

  // Releases every waiter. Called once.
  void end(Status failure);

 private:
  proto::Lists lists_of(const Arguments& arguments);
  proto::DenseTensor dense() const;

  std::uint64_t seq_ = 0;
  const Arguments arguments_;
  const wire::Topology topology_;
  wire::Descriptor descriptor_;
  proto::ChunkGrid grid_;
  Status bad_input_;
  bool leaves_out_zeros_ = false;
  std::atomic<std::uint64_t> named_ = 0;
  std::atomic<bool> is_counted_ = true;
  std::vector<std::unique_ptr<SharedOutput>> shared_;
  proto::Outputs outputs_;
  std::shared_ptr<proto::Sink> sink_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> ended_ = false;  // read without the lock, which a fork may leave held
  Status failure_;
};

}  // namespace sparsewire::comm
