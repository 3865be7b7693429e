// Carries messages between the protocols' halves and the channels, in the lane's own thread.
#include "comm/lane_protocol.hpp"

#include <algorithm>
#include <utility>

#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

// Steps of exchanges before the connections get their turn again.
constexpr int kStepsPerRound = 8;

Error is_no_owner() { return protocol_error("frame: this rank owns nothing"); }
Error is_no_peer() { return protocol_error("frame: this rank takes part in no exchange here"); }
Error is_no_taker() { return protocol_error("frame: this rank sends nothing to such an owner"); }
Error is_no_worker() { return protocol_error("frame: a worker does not take this kind"); }

}  // namespace

LaneProtocol::LaneProtocol(const LanePlace& place, PeerChannels& peers, LaneBook& book,
                           LaneListener& listener)
    : place_(place),
      peers_(peers),
      book_(book),
      listener_(listener),
      worker_(place.topology, place.lane) {
  if (!place.dedicated) {
    const auto own = static_cast<std::uint32_t>(place.rank);
    const std::uint32_t ranks = place.topology.world_size;
    owner_ = std::make_unique<proto::Owner>(
        place.topology, place.lane, own,
        proto::OwnerDuty{.speakers = place.hosts.speakers(own, ranks)});
    deputies_.resize(ranks);
    for (std::uint32_t owner = 0; owner < ranks; ++owner) {
      if (!place.is_deputy(owner)) continue;
      deputies_[owner] = std::make_unique<proto::Deputy>(place.topology, place.lane, owner,
                                                         place.hosts.ranks_beside(place.rank));
    }
  }
  if (place.has_exchanges()) {
    peer_ = std::make_unique<proto::Peer>(place.rank, static_cast<Rank>(place.topology.world_size));
  }
}

void LaneProtocol::submit(Operation& operation) {
  auto source = operation.source(place_.lane, costs_);
  // What stays on the host is not rounded; its deputy rounds what crosses the network.
  if (!place_.hosts.has_deputies(place_.rank)) {
    source = operation.encoded(std::move(source), place_.rank);
  }
  const bool takes_part = worker_.submit(operation.seq(), operation.stream_descriptor(),
                                         operation.grid(), std::move(source), operation.sink());
  if (!takes_part) end(operation.seq());
}

void LaneProtocol::introduce(Operation& operation) {
  const std::uint64_t seq = operation.seq();
  const Operation::Arguments& arguments = operation.arguments();
  proto::Peer::Effects effects;
  if (operation.bad_input()) {
    refuse(seq, *operation.bad_input(), effects);
  } else if (operation.needs_agreement()) {
    peer_->submit(seq, arguments.call, arguments.tensor, operation.outputs(), effects);
  } else {
    peer_->issue_stream(seq, arguments.call, effects);
  }
  apply(std::move(effects));
}

// Colocated ranks tell each other; dedicated owners tell all ranks.
void LaneProtocol::refuse(std::uint64_t seq, const Error& bad_input,
                          proto::Peer::Effects& effects) {
  const Error error{ErrorCode::input, place_.rank, place_.who() + ": " + bad_input.message};
  if (peer_) return peer_->refuse(seq, error, effects);
  peers_.send_to_all(wire::fault_message(wire::FrameKind::refuse, error, seq));
  effects.events.push_back({proto::PeerEvent::Kind::failed, seq, error});
}

void LaneProtocol::fail(std::uint64_t seq) {
  if (is_broken_) return;
  peers_.detach();
  for (std::uint32_t owner = 0; owner < peers_.owners(); ++owner) {
    send_to_taker(
        owner,
        {{.kind = wire::FrameKind::cancel, .owner = static_cast<std::uint16_t>(owner), .seq = seq},
         {}});
  }
  worker_.drop(seq);
  if (book_.has(seq)) end(seq);
}

void LaneProtocol::break_off() noexcept {
  is_broken_ = true;
  owner_.reset();
  deputies_.clear();
  peer_.reset();
}

void LaneProtocol::end_all() noexcept {
  while (!book_.empty()) {
    const std::uint64_t seq = book_.oldest();
    worker_.drop(seq);
    end(seq);
  }
}

void LaneProtocol::end(std::uint64_t seq) {
  book_.erase(seq);
  if (peer_) peer_->drop(seq);
  peers_.counters.chunks_empty.store(worker_.chunks_empty(), std::memory_order_relaxed);
  listener_.operation_left(seq);
}

void LaneProtocol::set_link(const proto::LinkFigures& link) {
  costs_ = proto::costs_of(link);
  if (owner_) owner_->set_costs(costs_);
  for (const auto& deputy : deputies_) {
    if (deputy) deputy->set_costs(costs_);
  }
  if (peer_) peer_->set_link(link);
}

std::vector<Rank> LaneProtocol::missing(std::uint64_t seq) const {
  auto missing = peer_ ? peer_->missing(seq) : std::vector<Rank>{};
  for (const auto& deputy : deputies_) {
    if (missing.empty() && deputy) missing = deputy->missing(seq);
  }
  if (!missing.empty() || !owner_) return missing;
  missing = owner_->missing(seq);
  // Who speaks for a host waits for others there, which only it can tell.
  std::erase_if(missing, [this](Rank rank) { return place_.hosts.has_deputies(rank); });
  return missing;
}

std::vector<std::uint32_t> LaneProtocol::awaited(std::uint64_t seq) const {
  std::vector<std::uint32_t> owners = worker_.waiting_for(seq);
  for (std::uint32_t& owner : owners) owner = place_.taker(owner);
  const auto await = [&owners](const std::vector<Rank>& ranks) {
    owners.insert(owners.end(), ranks.begin(), ranks.end());
  };
  if (peer_) await(peer_->missing(seq));
  if (owner_) await(owner_->missing(seq));
  for (std::uint32_t owner = 0; owner < deputies_.size(); ++owner) {
    if (!deputies_[owner]) continue;
    await(deputies_[owner]->missing(seq));
    owners.push_back(owner);
  }
  return owners;
}

// --- What comes ---

Status LaneProtocol::accepts(std::uint32_t from, const wire::FrameHeader& header) const {
  switch (header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
    case wire::FrameKind::decline:
      if (!owner_) return is_no_owner();
      if (const auto* deputy = deputy_for(static_cast<Rank>(from), header.owner)) {
        return deputy->accepts(static_cast<Rank>(from), header);
      }
      return owner_->accepts(static_cast<Rank>(from), header);
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      return peer_ ? Status{} : is_no_peer();
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return {};
    default:
      return is_no_worker();
  }
}

std::byte* LaneProtocol::place(std::uint32_t from, const wire::FrameHeader& header) const {
  if (header.kind != wire::FrameKind::result) return nullptr;
  const std::uint32_t owner = place_.dedicated ? from : header.owner;
  return is_taker(from, owner) ? worker_.place(owner, header) : nullptr;
}

Status LaneProtocol::on_message(std::uint32_t from, wire::Message message) {
  switch (message.header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
    case wire::FrameKind::decline:
      if (!owner_) return is_no_owner();
      message.payload = message.payload.owned();
      return on_owner_message(static_cast<Rank>(from), std::move(message));
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      return peer_ ? on_peer_message(static_cast<Rank>(from), message) : is_no_peer();
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return on_answer(from, message);
    default:
      return is_no_worker();
  }
}

// The deputy that takes what a rank of this host has for an owner; null for ranks elsewhere.
proto::Deputy* LaneProtocol::deputy_for(Rank rank, std::uint32_t owner) const {
  if (!place_.hosts.share(rank, place_.rank) || owner >= deputies_.size()) return nullptr;
  return deputies_[owner].get();
}

bool LaneProtocol::is_taker(std::uint32_t from, std::uint32_t owner) const {
  return owner < place_.topology.owners && (place_.dedicated ? owner : place_.taker(owner)) == from;
}

// Answers come from the taker of this rank's own values or, where this rank speaks for its host,
// from the owner.
Status LaneProtocol::on_answer(std::uint32_t from, const wire::Message& message) {
  const std::uint32_t owner = place_.dedicated ? from : message.header.owner;
  if (is_taker(from, owner)) return on_worker_message(owner, message);
  if (owner != from || owner >= deputies_.size() || !deputies_[owner]) return is_no_taker();
  return on_deputy_answer(owner, message);
}

Status LaneProtocol::on_deputy_answer(std::uint32_t owner, const wire::Message& message) {
  proto::Deputy::Outbox outbox;
  if (Status error = deputies_[owner]->on_answer(message, outbox)) return error;
  return pass_on(owner, std::move(outbox));
}

Status LaneProtocol::on_owner_message(Rank rank, wire::Message message) {
  const std::uint32_t owner = message.header.owner;
  if (proto::Deputy* const deputy = deputy_for(rank, owner)) {
    proto::Deputy::Outbox outbox;
    if (Status error = deputy->on_message(rank, std::move(message), outbox)) return error;
    return pass_on(owner, std::move(outbox));
  }
  return on_speaker_message(rank, std::move(message));
}

Status LaneProtocol::on_speaker_message(Rank rank, wire::Message message) {
  proto::Owner::Outbox outbox;
  if (Status error = owner_->on_message(rank, std::move(message), outbox)) return error;
  return broadcast(std::move(outbox));
}

Status LaneProtocol::on_worker_message(std::uint32_t owner, const wire::Message& message) {
  const std::uint64_t seq = message.header.seq;
  if (message.header.kind == wire::FrameKind::fail) {
    return wire::take_fault(message,
                            [&](const Error& error) { listener_.operation_failed(seq, error); });
  }
  LaneCounters::add(peers_.counters.results_received, 1);
  const auto ended = worker_.on_result(owner, message.header, message.payload);
  if (!ended) return ended.error();
  if (*ended) end(seq);
  return {};
}

Status LaneProtocol::on_peer_message(Rank rank, const wire::Message& message) {
  proto::Peer::Effects effects;
  if (Status error = peer_->on_message(rank, message, effects)) return error;
  apply(std::move(effects));
  return {};
}

// --- What goes ---

// All connections are kept busy, and the look-ahead of one owner's chunks does not hold up
// another's. The first owner differs from rank to rank.
bool LaneProtocol::produce() {
  bool has_produced = false;
  const std::uint32_t owners = peers_.owners();
  const auto shift = static_cast<std::uint32_t>(place_.rank) + 1;
  for (std::uint32_t i = 0; i < owners; ++i) {
    const std::uint32_t owner = (i + shift) % owners;
    has_produced |= produce_for_host(owner);
    auto message = worker_.poll(owner);
    if (!message) continue;
    send_to_taker(owner, *std::move(message));
    has_produced = true;
  }
  return has_produced;
}

// Sends at most one message to an owner for all ranks of this host.
bool LaneProtocol::produce_for_host(std::uint32_t owner) {
  if (owner >= deputies_.size() || !deputies_[owner]) return false;
  auto message = deputies_[owner]->poll();
  if (!message) return false;
  if (Status error = send_up(owner, *std::move(message))) listener_.broken(*error);
  return true;
}

// What this rank has for an owner.
void LaneProtocol::send_to_taker(std::uint32_t owner, wire::Message message) {
  if (message.header.kind == wire::FrameKind::segment) {
    LaneCounters::add(peers_.counters.segments_sent, 1);
  }
  const std::uint32_t taker = place_.dedicated ? owner : place_.taker(owner);
  if (!place_.is_self(taker)) {
    peers_.send(taker, std::move(message));
  } else if (Status error = on_owner_message(place_.rank, std::move(message))) {
    listener_.broken(*error);
  }
}

// What this rank's host has for an owner.
Status LaneProtocol::send_up(std::uint32_t owner, wire::Message message) {
  if (place_.is_self(owner)) return on_speaker_message(place_.rank, std::move(message));
  peers_.send(owner, std::move(message));
  return {};
}

Status LaneProtocol::pass_on(std::uint32_t owner, proto::Deputy::Outbox outbox) {
  for (wire::Message& message : outbox.up) {
    if (Status error = send_up(owner, std::move(message))) return error;
  }
  for (const wire::Message& message : outbox.down) {
    send_to_others(deputies_[owner]->ranks(), message);
    if (Status error = on_worker_message(owner, message)) return error;
  }
  return {};
}

Status LaneProtocol::broadcast(proto::Owner::Outbox outbox) {
  const auto own = static_cast<std::uint32_t>(place_.rank);
  for (const wire::Message& message : outbox) {
    send_to_others(owner_->speakers(), message);
    Status error =
        deputies_[own] ? on_deputy_answer(own, message) : on_worker_message(own, message);
    if (error) return error;
  }
  return {};
}

void LaneProtocol::send_to_others(const std::vector<Rank>& ranks, const wire::Message& message) {
  for (const Rank rank : ranks) {
    if (rank != place_.rank) peers_.send(static_cast<std::uint32_t>(rank), message);
  }
}

// Results for a rank that reads slowly must not pile up, so the owner half pauses while they do. It
// goes on reading meanwhile: two ranks that both stopped could wait for each other for ever.
void LaneProtocol::pace_owner() {
  if (!owner_) return;
  const bool is_behind = peers_.is_any_behind();
  for (std::uint32_t owner = 0; owner < deputies_.size(); ++owner) {
    if (!deputies_[owner]) continue;
    proto::Deputy::Outbox outbox;
    deputies_[owner]->pause(is_behind, outbox);
    if (Status error = pass_on(owner, std::move(outbox))) listener_.broken(*error);
  }
  proto::Owner::Outbox outbox;
  owner_->pause(is_behind, outbox);
  if (Status error = broadcast(std::move(outbox))) listener_.broken(*error);
}

// Nothing of this rank's own is begun, and nothing ends, while a rank is behind with reading: so
// little waits in memory, and little is left to send behind the end.
void LaneProtocol::run_exchanges() {
  for (int round = 0; round < kStepsPerRound && can_exchange(); ++round) {
    proto::Peer::Effects effects;
    const auto worked = peer_->poll(effects);
    if (!worked) return listener_.broken(worked.error());
    apply(std::move(effects));
  }
}

bool LaneProtocol::can_exchange() const {
  return peer_ && peer_->has_work() && !peers_.is_any_behind();
}

bool LaneProtocol::has_work() {
  return can_exchange() || (owner_ && owner_->is_paused() && !peers_.is_any_behind()) ||
         can_produce();
}

bool LaneProtocol::can_produce() {
  for (std::uint32_t owner = 0; owner < peers_.owners(); ++owner) {
    if (worker_.has_work(owner)) return true;
  }
  return std::ranges::any_of(deputies_, [this](const auto& deputy) {
    return deputy && (deputy->has_work() || (deputy->is_paused() && !peers_.is_any_behind()));
  });
}

void LaneProtocol::apply(proto::Peer::Effects effects) {
  for (proto::Outgoing& outgoing : effects.messages) {
    if (outgoing.to == kNoRank) {
      peers_.send_to_all(outgoing.message);
    } else {
      peers_.send(static_cast<std::uint32_t>(outgoing.to), std::move(outgoing.message));
    }
  }
  for (const proto::PeerEvent& event : effects.events) {
    using Kind = proto::PeerEvent::Kind;
    if (event.kind == Kind::failed) listener_.operation_failed(event.seq, event.error);
    if (event.kind == Kind::ended) end(event.seq);
    if (event.kind == Kind::chosen) listener_.operation_chosen(event.seq, event.route);
  }
}

}  // namespace sparsewire::comm
