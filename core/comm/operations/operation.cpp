// Prepares one operation, and ends it.
#include "comm/operations/operation.hpp"

#include <utility>

#include "comm/operations/counted_source.hpp"
#include "comm/operations/result_pool.hpp"
#include "proto/exchange/choice.hpp"
#include "proto/sparse/splitter.hpp"
#include "proto/stream/source.hpp"

namespace sparsewire::comm {
Operation::Operation(const Arguments& arguments, const wire::Topology& topology)
    : arguments_(arguments),
      topology_(topology),
      descriptor_(arguments.call.descriptor),
      outputs_(descriptor_, arguments.out, lists_of(arguments)) {
  descriptor_.is_striped = descriptor_.is_sparse;
  grid_ = proto::make_grid(descriptor_, topology_);
  if (descriptor_.is_sparse) {
    bad_input_ = proto::check(arguments_.tensor);
  } else {
    leaves_out_zeros_ = proto::leaves_out_zeros(dense());
  }
}

bool Operation::needs_agreement() const {
  const wire::Call& call = arguments_.call;
  if (!call.descriptor.is_sparse) return false;
  if (call.collective != wire::Collective::all_reduce) return true;
  // Unlike a join, an open frame does not tell rows from a vector of as many elements.
  const bool is_settled = call.unit == 1 && call.algorithm == wire::Algorithm::automatic &&
                          proto::is_short(call.descriptor);
  return !is_settled && !proto::runs_as_stream(call.algorithm);
}

std::uint32_t Operation::main_lane() const {
  return needs_agreement() ? 0 : proto::lane_of(0, seq_, topology_);
}

void Operation::leave_out_stripes() {
  descriptor_.is_striped = false;
  grid_ = proto::make_grid(descriptor_, topology_);
}

void Operation::open_stream() {
  if (descriptor_.is_sparse) {
    proto::Sink* const sink = outputs_.open({{descriptor_.count, grid_}}).front();
    sink_ = {std::shared_ptr<void>(), sink};  // The outputs own the sink.
  } else {
    sink_ = std::make_shared<proto::DenseSink>(dense());
  }
}

std::unique_ptr<proto::Source> Operation::source(std::uint32_t lane, const proto::Costs& costs,
                                                 LaneLog* log) {
  if (!descriptor_.is_sparse) {
    auto source = std::make_unique<proto::DenseSource>(dense(), leaves_out_zeros_,
                                                       proto::costs_for(descriptor_, costs));
    return std::make_unique<CountedSource>(std::move(source), grid_, seq_, named_, log);
  }
  const auto is_mine = [this, lane](std::uint64_t chunk) {
    return proto::lane_of(chunk, seq_, topology_) == lane;
  };
  return std::make_unique<proto::SparseSource>(arguments_.tensor, grid_, is_mine);
}

std::optional<std::uint64_t> Operation::named() const {
  if (!is_counted_) return {};
  const proto::SparseTensor& tensor = arguments_.tensor;
  return descriptor_.is_sparse ? tensor.named * tensor.descriptor.row : named_.load();
}

std::unique_ptr<proto::Source> Operation::encoded(std::unique_ptr<proto::Source> source,
                                                  Rank rank) const {
  if (descriptor_.segment_codec == Codec::raw) return source;
  return std::make_unique<proto::EncodedSource>(std::move(source), descriptor_, grid_, seq_, rank);
}

proto::SlotTensor Operation::slot_tensor(proto::Arithmetic arithmetic) const {
  return {.source = arguments_.source,
          .out = arguments_.out,
          .dtype = descriptor_.dtype,
          .op = descriptor_.op,
          .count = descriptor_.count,
          .scans = leaves_out_zeros_,
          .arithmetic = arithmetic};
}

proto::DenseTensor Operation::dense() const {
  return {arguments_.source, arguments_.out, descriptor_, grid_};
}

// Indices are as wide as those of the input, unless other ranks may name positions beyond their
// range.
proto::Lists Operation::lists_of(const Arguments& arguments) {
  const proto::SparseTensor& tensor = arguments.tensor;
  proto::Lists lists{
      .is_wide = tensor.is_wide || tensor.positions() > INT32_MAX,
      .are_taken = arguments.call.descriptor.purpose.form != wire::ResultForm::dense,
      .allocate = [](std::size_t size) { return ResultPool::shared().allocate(size); }};
  if (topology_.lanes > 1) {
    lists.share = [this](proto::SparseOutput& output) -> proto::PartSink* {
      return shared_.emplace_back(std::make_unique<SharedOutput>(output)).get();
    };
  }
  return lists;
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
