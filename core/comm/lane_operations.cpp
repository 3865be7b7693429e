// How operations get into a lane, and out of it.
#include "comm/link.hpp"
#include "proto/sparse/sparse_source.hpp"
#include "proto/stream/dense.hpp"
#include "proto/stream/encoded_source.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {

void Lane::submit(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_submit(operation); });
}

void Lane::announce(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_announce(operation); });
}

void Lane::join(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_join(operation); });
}

void Lane::refuse(std::shared_ptr<Operation> operation, Error error) {
  thread_.post([this, operation = std::move(operation), error = std::move(error)] {
    do_refuse(operation, error);
  });
}

void Lane::set_link(const proto::LinkModel& link) {
  thread_.post([this, link] {
    costs_ = proto::costs_of(link);
    if (owner_) owner_->set_costs(costs_);
    if (peer_) peer_->set_link(link);
  });
}

void Lane::fail(std::uint64_t seq) {
  thread_.post([this, seq] { do_fail(seq); });
}

// From here on the lane ends the operation, whatever happens. False where it has ended at once.
bool Lane::take_on(const std::shared_ptr<Operation>& operation) {
  try {
    if (!broken_) in_flight_.emplace(operation->seq(), operation);
  } catch (const std::exception& exception) {
    on_exception(exception);
  }
  if (broken_) {
    listener_.operation_left(operation->seq());
    return false;
  }
  next_deadline_ = std::min(next_deadline_, operation->arguments().deadline);
  check_departures();
  return true;
}

void Lane::do_submit(const std::shared_ptr<Operation>& operation) {
  const std::uint64_t seq = operation->seq();
  const bool is_here = is_introduced_first() ? in_flight_.contains(seq) : take_on(operation);
  if (!is_here) return;
  const bool is_sparse = operation->arguments().descriptor().is_sparse;
  const bool takes_part = is_sparse ? submit_sparse(operation) : submit_dense(operation);
  if (!takes_part) end_operation(seq);
}

bool Lane::submit_dense(const std::shared_ptr<Operation>& operation) {
  const Operation::Arguments& arguments = operation->arguments();
  const proto::ChunkGrid grid = proto::make_grid(arguments.descriptor(), place_.topology);
  const proto::DenseTensor tensor{arguments.source, arguments.target, arguments.descriptor(), grid};
  return submit_source(
      operation, grid,
      std::make_unique<proto::DenseSource>(tensor, operation->leaves_out_zeros(),
                                           proto::costs_for(arguments.descriptor(), costs_)),
      std::make_shared<proto::DenseSink>(tensor));
}

bool Lane::submit_sparse(const std::shared_ptr<Operation>& operation) {
  const Operation::Arguments& arguments = operation->arguments();
  const proto::ChunkGrid grid = proto::make_grid(operation->stream_descriptor(), place_.topology);
  const auto is_mine = [topology = place_.topology, lane = place_.lane,
                        seq = operation->seq()](std::uint64_t chunk) {
    return proto::lane_of(chunk, seq, topology) == lane;
  };
  return submit_source(operation, grid,
                       std::make_unique<proto::SparseSource>(arguments.tensor, grid, is_mine),
                       operation->stream_sink());
}

bool Lane::submit_source(const std::shared_ptr<Operation>& operation, const proto::ChunkGrid& grid,
                         std::unique_ptr<proto::Source> source, std::shared_ptr<proto::Sink> sink) {
  const wire::Descriptor& descriptor = operation->stream_descriptor();
  if (descriptor.segment_codec != Codec::raw) {
    source = std::make_unique<proto::EncodedSource>(std::move(source), descriptor, grid,
                                                    operation->seq(), place_.rank);
  }
  return worker_.submit(operation->seq(), descriptor, grid, std::move(source), std::move(sink));
}

void Lane::do_announce(const std::shared_ptr<Operation>& operation) {
  if (!take_on(operation)) return;
  proto::Peer::Effects effects;
  peer_->issue_stream(operation->seq(), operation->stream_descriptor(), effects);
  apply(std::move(effects));
}

void Lane::do_join(const std::shared_ptr<Operation>& operation) {
  if (!take_on(operation)) return;
  const Operation::Arguments& arguments = operation->arguments();
  proto::Peer::Effects effects;
  peer_->submit(operation->seq(), arguments.join, arguments.tensor, operation->outputs(), effects);
  apply(std::move(effects));
}

// Colocated ranks tell each other; dedicated owners tell all ranks.
void Lane::do_refuse(const std::shared_ptr<Operation>& operation, const Error& error) {
  if (!take_on(operation)) return;
  const std::uint64_t seq = operation->seq();
  proto::Peer::Effects effects;
  if (peer_) {
    peer_->refuse(seq, error, effects);
  } else {
    send_to_links(wire::fault_message(wire::FrameKind::refuse, error, seq));
    effects.events.push_back({proto::PeerEvent::Kind::failed, seq, error});
  }
  apply(std::move(effects));
}

void Lane::do_fail(std::uint64_t seq) {
  if (broken_) return;
  for (const auto& link : links_) {
    if (link) link->connection.detach();
  }
  for (std::uint32_t owner = 0; owner < links_.size(); ++owner) {
    send_to_owner(owner, {{.kind = wire::FrameKind::cancel, .seq = seq}, {}});
  }
  worker_.drop(seq);
  if (in_flight_.contains(seq)) end_operation(seq);
}

void Lane::end_operation(std::uint64_t seq) {
  in_flight_.erase(seq);
  if (peer_) peer_->drop(seq);
  counters_.chunks_empty.store(worker_.chunks_empty(), std::memory_order_relaxed);
  listener_.operation_left(seq);
}

}  // namespace sparsewire::comm
