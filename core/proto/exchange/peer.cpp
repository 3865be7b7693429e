// Takes joins until all ranks agree, and moves parts to and from exchanges.
#include "proto/exchange/peer.hpp"

#include <algorithm>
#include <array>

#include "wire/frame.hpp"

namespace sparsewire::proto {
namespace {

using wire::Collective;

wire::Message join_message(const wire::Join& join, std::uint64_t seq) {
  std::array<std::byte, wire::kJoinBytes> payload;
  wire::encode(join, payload);
  return wire::message_of({.kind = wire::FrameKind::join, .seq = seq}, Bytes::copy_of(payload));
}

wire::Message tally_message(const wire::Tally& tally, std::uint64_t seq) {
  return wire::message_of({.kind = wire::FrameKind::tally, .seq = seq}, wire::encode_tally(tally));
}

}  // namespace

Peer::Operation& Peer::issue(std::uint64_t seq) {
  issued_ = seq + 1;
  return operations_.try_emplace(seq, tree_).first->second;
}

Peer::Operation* Peer::find_or_create(std::uint64_t seq) {
  const auto at = operations_.find(seq);
  if (at != operations_.end()) return &at->second;
  return seq < issued_ ? nullptr : &operations_.try_emplace(seq, tree_).first->second;
}

void Peer::submit(std::uint64_t seq, const wire::Call& call, const SparseTensor& tensor,
                  Outputs& outputs, Effects& effects) {
  Operation& operation = issue(seq);
  if (operation.state == PeerState::failed) return;  // Another rank has refused it.
  operation.move(PeerStep::submit);
  operation.call = call;
  operation.tensor = tensor;
  operation.outputs = &outputs;
  const std::uint64_t row = call.descriptor.row;
  const wire::Join join{call, tensor.named * row, crowded(tensor) * row};
  tell_neighbours(join_message(join, seq), kNoRank, effects);
  operation.joins.join(join);
  if (!is_alike(seq, operation, effects)) return;
  // Short vectors do not wait for all ranks to join: little memory waits for late ranks then. With
  // a tree they do wait: other ranks cannot tell yet whether this rank has called the same.
  if (is_short(call.descriptor) && !tree_->is_shared()) {
    start(seq, operation, {*settled(call), call.descriptor.count, false}, effects);
  }
  advance(seq, operation, effects);
}

void Peer::issue_stream(std::uint64_t seq, const wire::Call& call, Effects& effects) {
  Operation& operation = issue(seq);
  if (operation.state == PeerState::failed) return;
  operation.move(PeerStep::issue_stream);
  operation.call = call;
  operation.call.algorithm = wire::Algorithm::stream;
  (void)is_alike(seq, operation, effects);
}

// Among few ranks the neighbours are all other ranks.
void Peer::tell_neighbours(const wire::Message& message, Rank but, Effects& effects) const {
  if (!tree_->is_shared()) return effects.messages.push_back({kNoRank, message});
  for (const Rank rank : tree_->neighbours()) {
    if (rank != but) effects.messages.push_back({rank, message});
  }
}

Status Peer::on_message(Rank from, const wire::Message& message, Effects& effects) {
  const bool is_part = message.header.kind == wire::FrameKind::part;
  if (!is_part && !tree_->is_neighbour(from)) {
    return protocol_error("join: this rank is no neighbour in the tree of joins");
  }
  Operation* const operation = find_or_create(message.header.seq);
  if (!operation) return on_late(from, message, effects);
  if (operation->state == PeerState::failed) return {};
  switch (message.header.kind) {
    case wire::FrameKind::join:
      return on_join(from, *operation, message, effects);
    case wire::FrameKind::tally:
      return on_tally(from, *operation, message, effects);
    case wire::FrameKind::missing:
      return on_missing(from, *operation, message, effects);
    case wire::FrameKind::refuse:
      return on_refuse(from, *operation, message, effects);
    default:
      return on_part(from, *operation, message, effects);
  }
}

Status Peer::on_join(Rank from, Operation& operation, const wire::Message& message,
                     Effects& effects) {
  const auto join = wire::decode_join(message.payload.view());
  if (!join) return join.error();
  if (join->call.root >= static_cast<std::uint32_t>(tree_->world_size())) {
    return protocol_error("join: its root is out of range");
  }
  if (Status error = operation.joins.on_join(from, *join)) return error;
  check_agreement(message.header.seq, operation, effects);
  return {};
}

Status Peer::on_tally(Rank from, Operation& operation, const wire::Message& message,
                      Effects& effects) {
  if (Status error = operation.joins.on_tally(from, message.payload)) return error;
  check_agreement(message.header.seq, operation, effects);
  return {};
}

void Peer::check_agreement(std::uint64_t seq, Operation& operation, Effects& effects) {
  if (operation.state == PeerState::heard) return;
  if (is_alike(seq, operation, effects)) advance(seq, operation, effects);
}

// Whether the joins that have come agree with this rank's call. If not, the operation fails.
bool Peer::is_alike(std::uint64_t seq, Operation& operation, Effects& effects) {
  const bool is_stream = operation.state == PeerState::streaming;
  for (const auto& [rank, join] : operation.joins.heard()) {
    if (!is_stream && join.call == operation.call) continue;
    const Error error{ErrorCode::mismatch, rank,
                      "ranks disagree: rank " + std::to_string(rank_) + " called " +
                          wire::describe(operation.call) + ", rank " + std::to_string(rank) +
                          " called " + wire::describe(join.call)};
    // Else ranks that wait for this rank's join, or hear of others through this rank, would wait
    // for ever.
    if (is_stream || tree_->is_shared()) {
      tell_neighbours(wire::fault_message(wire::FrameKind::refuse, error, seq), kNoRank, effects);
    }
    fail(seq, operation, error, effects);
    return false;
  }
  return true;
}

// Once all joins have come and agree, the operation may run.
void Peer::advance(std::uint64_t seq, Operation& operation, Effects& effects) {
  if (const auto report = operation.joins.take_report()) {
    effects.messages.push_back({*tree_->parent(), tally_message(*report, seq)});
  }
  if (operation.joins.total()) conclude(seq, operation, effects);
}

// All ranks have joined with the same call.
void Peer::conclude(std::uint64_t seq, Operation& operation, Effects& effects) {
  const wire::Tally& total = *operation.joins.total();
  if (tree_->is_shared()) {
    const wire::Message message = tally_message(total, seq);
    for (const Branch& branch : tree_->branches()) {
      effects.messages.push_back({branch.top, message});
    }
  }
  has_work_ = true;
  if (operation.state == PeerState::joining) {
    start(seq, operation, agreement_on(operation.call, total, tree_->world_size(), hosts_, link_),
          effects);
  }
}

void Peer::start(std::uint64_t seq, Operation& operation, const Agreement& agreement,
                 Effects& effects) {
  if (runs_as_stream(agreement.algorithm)) {
    const Route route = agreement.is_even ? Route::stream : Route::striped_stream;
    effects.events.push_back({PeerEvent::Kind::chosen, seq, {}, route, agreement.algorithm});
    operations_.erase(seq);
    return;
  }
  const PartPlan plan(operation.call, agreement.algorithm, rank_, tree_->world_size(), seq,
                      agreement.most_elements, hosts_);
  operation.move(PeerStep::exchange);
  const ExchangeOrder order{plan, operation.tensor, open_sinks(plan, operation),
                            costs_for(operation.call.descriptor, costs_of(link_))};
  operation.parts.begin(order, share_);
  has_work_ = true;
  PeerEvent chosen{.kind = PeerEvent::Kind::chosen, .seq = seq, .algorithm = agreement.algorithm};
  if (plan.is_shared_by(share_.lanes)) chosen.order = std::make_shared<ExchangeOrder>(order);
  effects.events.push_back(std::move(chosen));
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
  const auto& total = operation.joins.total();
  if (!total) return {};
  const Collective collective = operation.call.collective;
  const auto root = static_cast<Rank>(operation.call.root);
  if (collective == Collective::reduce && rank_ != root) return 0;
  if (collective == Collective::all_gather) return total->of_each[list];
  return collective == Collective::broadcast ? total->most : total->elements;
}

Status Peer::on_part(Rank from, Operation& operation, const wire::Message& message,
                     Effects& effects) {
  if (operation.state == PeerState::streaming) {
    return protocol_error("part: its operation runs as a stream here");
  }
  if (!operation.joins.may_have_begun(from)) return protocol_error("part: its rank has not joined");
  has_work_ = true;
  return operation.parts.on_part(from, message, effects.messages);
}

Result<bool> Peer::poll(Effects& effects) {
  for (auto at = operations_.begin(); at != operations_.end();) {
    auto& [seq, operation] = *at++;  // The operation may end.
    if (operation.state != PeerState::exchanging) continue;
    const auto started = operation.parts.get_on(effects.messages);
    if (!started) return started.error();
    if (operation.parts.finished() && operation.joins.total()) {
      effects.events.push_back({PeerEvent::Kind::ended, seq});
      operations_.erase(seq);
      return true;
    }
    if (*started) return true;
  }
  has_work_ = false;
  return false;
}

void Peer::drop(std::uint64_t seq) {
  if (seq < issued_) operations_.erase(seq);
}

std::optional<PeerState> Peer::state(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  if (at == operations_.end()) return {};
  return at->second.state;
}

}  // namespace sparsewire::proto
