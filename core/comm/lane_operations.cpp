// How operations get into a lane, and out of it.
#include "comm/link.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {

void Lane::submit(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_submit(operation); });
}

void Lane::introduce(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_introduce(operation); });
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
  const bool takes_part =
      worker_.submit(seq, operation->stream_descriptor(), operation->grid(),
                     operation->source(place_.lane, place_.rank, costs_), operation->sink());
  if (!takes_part) end_operation(seq);
}

void Lane::do_introduce(const std::shared_ptr<Operation>& operation) {
  if (!take_on(operation)) return;
  const std::uint64_t seq = operation->seq();
  const Operation::Arguments& arguments = operation->arguments();
  proto::Peer::Effects effects;
  if (operation->bad_input()) {
    refuse(seq, *operation->bad_input(), effects);
  } else if (operation->needs_agreement()) {
    peer_->submit(seq, arguments.call, arguments.tensor, operation->outputs(), effects);
  } else {
    peer_->issue_stream(seq, arguments.call, effects);
  }
  apply(std::move(effects));
}

// Colocated ranks tell each other; dedicated owners tell all ranks.
void Lane::refuse(std::uint64_t seq, const Error& bad_input, proto::Peer::Effects& effects) {
  const Error error{ErrorCode::input, place_.rank,
                    "rank " + std::to_string(place_.rank) + ": " + bad_input.message};
  if (peer_) return peer_->refuse(seq, error, effects);
  send_to_links(wire::fault_message(wire::FrameKind::refuse, error, seq));
  effects.events.push_back({proto::PeerEvent::Kind::failed, seq, error});
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
