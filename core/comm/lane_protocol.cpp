// Carries messages between the protocols' halves and the channels, in the lane's own thread.
#include "comm/lane_protocol.hpp"

#include <utility>

#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

// Steps of exchanges before the connections get their turn again.
constexpr int kStepsPerRound = 8;

Error is_no_owner() { return protocol_error("frame: this rank owns nothing"); }
Error is_no_peer() { return protocol_error("frame: this rank takes part in no exchange here"); }
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
    owner_ = std::make_unique<proto::Owner>(place.topology, place.lane,
                                            static_cast<std::uint32_t>(place.rank));
  }
  if (place.has_exchanges()) {
    peer_ = std::make_unique<proto::Peer>(place.rank, static_cast<Rank>(place.topology.world_size));
  }
}

void LaneProtocol::submit(Operation& operation) {
  const bool takes_part =
      worker_.submit(operation.seq(), operation.stream_descriptor(), operation.grid(),
                     operation.source(place_.lane, place_.rank, costs_), operation.sink());
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
  for (const auto& peer : peers_) peer->connection.detach();
  for (std::uint32_t owner = 0; owner < peers_.owners(); ++owner) {
    send_to_owner(owner, {{.kind = wire::FrameKind::cancel, .seq = seq}, {}});
  }
  worker_.drop(seq);
  if (book_.has(seq)) end(seq);
}

void LaneProtocol::break_off() noexcept {
  is_broken_ = true;
  owner_.reset();
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
  if (peer_) peer_->set_link(link);
}

std::vector<Rank> LaneProtocol::missing(std::uint64_t seq) const {
  auto missing = peer_ ? peer_->missing(seq) : std::vector<Rank>{};
  if (missing.empty() && owner_) missing = owner_->missing(seq);
  return missing;
}

// --- What comes ---

Status LaneProtocol::accepts(std::uint32_t from, const wire::FrameHeader& header) const {
  switch (header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
      return owner_ ? owner_->accepts(static_cast<Rank>(from), header) : is_no_owner();
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
  return header.kind == wire::FrameKind::result ? worker_.place(from, header) : nullptr;
}

Status LaneProtocol::on_message(std::uint32_t from, wire::Message message) {
  switch (message.header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
      if (!owner_) return is_no_owner();
      message.payload = message.payload.owned();
      return on_owner_message(static_cast<Rank>(from), std::move(message));
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      return peer_ ? on_peer_message(static_cast<Rank>(from), message) : is_no_peer();
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return on_worker_message(from, message);
    default:
      return is_no_worker();
  }
}

Status LaneProtocol::on_owner_message(Rank rank, wire::Message message) {
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
    auto message = worker_.poll(owner);
    if (!message) continue;
    send_to_owner(owner, *std::move(message));
    has_produced = true;
  }
  return has_produced;
}

void LaneProtocol::send_to_owner(std::uint32_t owner, wire::Message message) {
  if (message.header.kind == wire::FrameKind::segment) {
    LaneCounters::add(peers_.counters.segments_sent, 1);
  }
  if (!place_.is_self(owner)) {
    peers_.send(owner, std::move(message));
  } else if (Status error = on_owner_message(place_.rank, std::move(message))) {
    listener_.broken(*error);
  }
}

Status LaneProtocol::broadcast(proto::Owner::Outbox outbox) {
  for (const wire::Message& message : outbox) {
    peers_.send_to_all(message);
    if (Status error = on_worker_message(static_cast<std::uint32_t>(place_.rank), message)) {
      return error;
    }
  }
  return {};
}

// Results for a rank that reads slowly must not pile up, so the owner half pauses while they do. It
// goes on reading meanwhile: two ranks that both stopped could wait for each other for ever.
void LaneProtocol::pace_owner() {
  if (!owner_) return;
  proto::Owner::Outbox outbox;
  owner_->pause(peers_.is_any_behind(), outbox);
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
  return false;
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
