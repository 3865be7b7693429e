// Joins, agreement, and frames on their way to and from exchanges.
#include "proto/exchange/peer.hpp"

#include <algorithm>
#include <array>

#include "wire/frame.hpp"

namespace sparsewire::proto {
namespace {

using wire::Algorithm;
using wire::Collective;

// Failures that are remembered: more than are ever on their way at once.
constexpr std::size_t kFailuresKept = 1024;

// The algorithm, where it does not depend on what the other ranks bring.
std::optional<Algorithm> settled(const wire::Call& call) {
  if (call.collective != Collective::all_reduce) return Algorithm::allgather;
  if (call.algorithm != Algorithm::automatic) return call.algorithm;
  if (is_short(call.descriptor)) return Algorithm::allgather;
  return {};
}

wire::Message join_message(const wire::Join& join, std::uint64_t seq) {
  std::array<std::byte, wire::kJoinBytes> payload;
  wire::encode(join, payload);
  return wire::message_of({.kind = wire::FrameKind::join, .seq = seq}, Bytes::copy_of(payload));
}

wire::Message refuse_message(const Error& error, std::uint64_t seq) {
  return wire::fault_message(wire::FrameKind::refuse, error, seq);
}

}  // namespace

Peer::Operation* Peer::find_or_create(std::uint64_t seq) {
  const auto at = operations_.find(seq);
  if (at != operations_.end()) return &at->second;
  return seq < issued_ ? nullptr : &operations_[seq];
}

void Peer::submit(std::uint64_t seq, const wire::Call& call, const SparseTensor& tensor,
                  Outputs& outputs, Effects& effects) {
  Operation& operation = operations_[seq];
  issued_ = seq + 1;
  if (operation.state == PeerState::failed) return;  // Another rank has refused it.
  operation.move(PeerStep::submit);
  operation.call = call;
  operation.tensor = tensor;
  operation.outputs = &outputs;
  const std::uint64_t row = call.descriptor.row;
  const wire::Join join{call, tensor.named * row, crowded(tensor) * row};
  effects.messages.push_back({kNoRank, join_message(join, seq)});
  operation.joins.emplace(rank_, join);
  // Short vectors do not wait for all to join, which bounds what waits for those who come late.
  if (is_short(call.descriptor)) {
    start(seq, operation, {*settled(call), call.descriptor.count, false}, effects);
  }
  check_agreement(seq, operation, effects);
}

void Peer::issue_stream(std::uint64_t seq, const wire::Call& call, Effects& effects) {
  Operation& operation = operations_[seq];
  issued_ = seq + 1;
  if (operation.state == PeerState::failed) return;
  operation.move(PeerStep::issue_stream);
  operation.call = call;
  operation.call.algorithm = Algorithm::stream;
  check_agreement(seq, operation, effects);
}

void Peer::refuse(std::uint64_t seq, const Error& error, Effects& effects) {
  issued_ = seq + 1;
  operations_.erase(seq);
  effects.messages.push_back({kNoRank, refuse_message(error, seq)});
  note_failure(seq, error, effects);
}

Status Peer::on_message(Rank from, const wire::Message& message, Effects& effects) {
  const std::uint64_t seq = message.header.seq;
  Operation* const operation = find_or_create(seq);
  if (!operation) return on_late(from, message, effects);
  if (operation->state == PeerState::failed) return {};
  switch (message.header.kind) {
    case wire::FrameKind::join: {
      const auto join = wire::decode_join(message.payload.view());
      return join ? on_join(from, seq, *join, effects) : join.error();
    }
    case wire::FrameKind::refuse:
      return wire::take_fault(message,
                              [&](const Error& error) { fail(seq, *operation, error, effects); });
    default:
      return on_part(from, *operation, message, effects);
  }
}

// Late frames are of an operation that has failed here, or that this lane has no part in. Whoever
// joins it may hear of that from nobody else, and must not wait for ever; and where a rank refuses
// it, other lanes may be at work on it.
Status Peer::on_late(Rank from, const wire::Message& message, Effects& effects) {
  const std::uint64_t seq = message.header.seq;
  const auto known = failures_.find(seq);
  if (message.header.kind == wire::FrameKind::refuse && known == failures_.end()) {
    return wire::take_fault(message,
                            [&](const Error& error) { note_failure(seq, error, effects); });
  }
  if (message.header.kind != wire::FrameKind::join) return {};
  const Error error =
      known != failures_.end()
          ? known->second
          : Error{ErrorCode::mismatch, rank_,
                  "ranks disagree: rank " + std::to_string(rank_) + " called another collective"};
  effects.messages.push_back({from, refuse_message(error, seq)});
  return {};
}

Status Peer::on_join(Rank from, std::uint64_t seq, const wire::Join& join, Effects& effects) {
  Operation& operation = operations_.at(seq);
  if (!operation.joins.emplace(from, join).second) return protocol_error("join: sent twice");
  if (join.call.root >= static_cast<std::uint32_t>(world_size_)) {
    return protocol_error("join: its root is out of range");
  }
  check_agreement(seq, operation, effects);
  return {};
}

// Compares what has come; once all is there and alike, the operation may run.
void Peer::check_agreement(std::uint64_t seq, Operation& operation, Effects& effects) {
  if (operation.state == PeerState::heard) return;
  const bool is_stream = operation.state == PeerState::streaming;
  for (const auto& [rank, join] : operation.joins) {
    if (!is_stream && join.call == operation.call) continue;
    const Error error{ErrorCode::mismatch, rank,
                      "ranks disagree: rank " + std::to_string(rank_) + " called " +
                          wire::describe(operation.call) + ", rank " + std::to_string(rank) +
                          " called " + wire::describe(join.call)};
    // Those who wait for a join of this rank would wait for ever.
    if (is_stream) effects.messages.push_back({kNoRank, refuse_message(error, seq)});
    return fail(seq, operation, error, effects);
  }
  if (is_stream || !has_all_joins(operation)) return;
  has_work_ = true;
  if (operation.state == PeerState::joining) start(seq, operation, agreement(operation), effects);
}

// The same on every rank, because all know all joins.
Peer::Agreement Peer::agreement(const Operation& operation) const {
  std::vector<std::uint64_t> elements;
  std::uint64_t named = 0;
  std::uint64_t crowded = 0;
  for (const auto& [rank, join] : operation.joins) {
    elements.push_back(join.elements);
    named += join.elements;
    crowded += join.crowded;
  }
  std::ranges::sort(elements);  // So that sums over them are the same, too.
  const wire::Descriptor& descriptor = operation.call.descriptor;
  const Load load{.length = descriptor.count,
                  .element_size = element_size(descriptor.dtype),
                  .elements = elements,
                  .is_even = is_even(named, crowded)};
  Algorithm algorithm = settled(operation.call).value_or(Algorithm::automatic);
  if (algorithm == Algorithm::automatic) algorithm = choose(load, link_);
  // The exchange would split the vector into equal ranges, which suits even loads alone.
  const bool is_split = algorithm == Algorithm::ssar_split_allgather;
  if (is_split && !load.is_even) algorithm = Algorithm::stream;
  return {algorithm, elements.back(), load.is_even};
}

void Peer::start(std::uint64_t seq, Operation& operation, const Agreement& agreement,
                 Effects& effects) {
  if (runs_as_stream(agreement.algorithm)) {
    const Route route = agreement.is_even ? Route::stream : Route::striped_stream;
    effects.events.push_back({PeerEvent::Kind::chosen, seq, {}, route});
    operations_.erase(seq);
    return;
  }
  const PartPlan plan(operation.call, agreement.algorithm, rank_, world_size_, seq,
                      agreement.most_elements);
  operation.move(PeerStep::exchange);
  operation.exchange =
      std::make_unique<Exchange>(plan, operation.tensor, open_sinks(plan, operation),
                                 costs_for(operation.call.descriptor, costs_of(link_)));
  has_work_ = true;
  effects.events.push_back({PeerEvent::Kind::chosen, seq, {}, Route::exchange});
}

std::vector<PartSink*> Peer::open_sinks(const PartPlan& plan, const Operation& operation) const {
  std::vector<Outputs::List> lists;
  for (std::uint64_t i = 0; i < plan.lists(); ++i) {
    const std::uint64_t list = plan.lists() == 1 ? plan.own_list() : i;
    lists.push_back({plan.end(list) - plan.begin(list), plan.grid(list), most_of(list, operation)});
  }
  return operation.outputs->open(lists);
}

std::optional<std::uint64_t> Peer::most_of(std::uint64_t list, const Operation& operation) const {
  if (!has_all_joins(operation)) return {};
  const auto elements_of = [&](Rank rank) {
    const auto at = operation.joins.find(rank);  // A root may be none of the ranks.
    return at == operation.joins.end() ? std::uint64_t{0} : at->second.elements;
  };
  const Collective collective = operation.call.collective;
  const auto root = static_cast<Rank>(operation.call.root);
  if (collective == Collective::reduce && rank_ != root) return 0;
  if (collective == Collective::all_gather) return elements_of(static_cast<Rank>(list));
  if (collective == Collective::broadcast) return elements_of(root);
  std::uint64_t most = 0;
  for (const auto& [rank, join] : operation.joins) most += join.elements;
  return most;
}

Status Peer::on_part(Rank from, Operation& operation, const wire::Message& message,
                     Effects& effects) {
  if (operation.state == PeerState::streaming) {
    return protocol_error("part: its operation runs as a stream here");
  }
  if (!operation.joins.contains(from)) return protocol_error("part: its rank has not joined");
  has_work_ = true;
  // Behind older ones that still wait, this one must wait, too.
  if (operation.state != PeerState::exchanging || !operation.early.empty()) {
    operation.early.push_back({from, {message.header, message.payload.owned()}});
    return {};
  }
  return operation.exchange->on_part(from, message.header, message.payload.owned(),
                                     effects.messages);
}

Result<bool> Peer::poll(Effects& effects) {
  for (auto at = operations_.begin(); at != operations_.end();) {
    auto& [seq, operation] = *at++;  // It may end.
    if (operation.state != PeerState::exchanging) continue;
    for (const Early& early : std::exchange(operation.early, {})) {
      if (Status error = operation.exchange->on_part(early.from, early.message.header,
                                                     early.message.payload, effects.messages)) {
        return *std::move(error);
      }
    }
    const auto started = operation.exchange->start_next(effects.messages);
    if (!started) return started.error();
    if (operation.exchange->finished() && has_all_joins(operation)) {
      effects.events.push_back({PeerEvent::Kind::ended, seq});
      operations_.erase(seq);
      return true;
    }
    if (*started) return true;
  }
  has_work_ = false;
  return false;
}

void Peer::fail(std::uint64_t seq, Operation& operation, const Error& error, Effects& effects) {
  operation.move(PeerStep::fail);
  operation.exchange.reset();
  note_failure(seq, error, effects);
}

void Peer::note_failure(std::uint64_t seq, const Error& error, Effects& effects) {
  failures_.emplace(seq, error);
  if (failures_.size() > kFailuresKept) failures_.erase(failures_.begin());
  effects.events.push_back({PeerEvent::Kind::failed, seq, error});
}

void Peer::drop(std::uint64_t seq) {
  if (seq < issued_) operations_.erase(seq);
}

std::optional<PeerState> Peer::state(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return {};
  return at->second.state;
}

std::vector<Rank> Peer::missing(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  if (at == operations_.end() || !at->second.joins.contains(rank_)) return {};
  const Operation& operation = at->second;
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < world_size_; ++rank) {
    if (!operation.joins.contains(rank)) missing.push_back(rank);
  }
  return missing.empty() && operation.exchange ? operation.exchange->missing() : missing;
}

}  // namespace sparsewire::proto
