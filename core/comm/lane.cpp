// Carries messages between the protocols' halves and the connections, in the lane's own thread.
#include "comm/lane.hpp"

#include <algorithm>
#include <utility>

#include "comm/link.hpp"
#include "comm/sending.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {
namespace {

// Messages produced per owner and round, before the connections get their turn again.
constexpr int kMessagesPerRound = 8;

constexpr std::chrono::milliseconds kDrainInterval{1};

wire::Message hello_message(const Lane::Place& place, std::uint32_t owner) {
  Bytes payload = wire::encode_hello({place.topology, place.lane, owner});
  const auto size = static_cast<std::uint32_t>(payload.size());
  return {{.kind = wire::FrameKind::hello, .payload = size}, std::move(payload)};
}

// Greetings, last words and signs of life are no part of what a caller asked for.
bool is_of_collective(wire::FrameKind kind) {
  switch (kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
    case wire::FrameKind::cancel:
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      return true;
    default:
      return false;
  }
}

std::uint64_t bytes_of(const wire::FrameHeader& header) {
  return wire::kHeaderBytes + header.payload;
}

// Only the lane's own thread counts, so this need not be one step.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t count) {
  counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

}  // namespace

Lane::Lane(const Place& place, std::span<int> sockets, LaneListener& listener)
    : place_(place),
      listener_(listener),
      worker_(place.topology, place.lane),
      metronome_(patience_of(place.topology)),
      thread_(*this) {
  if (!place.dedicated) {
    owner_ = std::make_unique<proto::Owner>(place.topology, place.lane,
                                            static_cast<std::uint32_t>(place.rank));
    if (place.lane == 0) {
      peer_ =
          std::make_unique<proto::Peer>(place.rank, static_cast<Rank>(place.topology.world_size));
    }
  }
  // Twice as often as it looks, so that no look is late by a whole interval.
  if (has_pulse()) thread_.tick_every(metronome_.interval() / 2);
  links_.resize(sockets.size());
  for (std::uint32_t owner = 0; owner < sockets.size(); ++owner) {
    if (is_self(owner)) continue;
    links_[owner] = std::make_unique<Link>(*this, owner, sockets[owner]);
    sockets[owner] = -1;
    thread_.watch(links_[owner]->connection);
    if (place.dedicated) links_[owner]->connection.send(hello_message(place, owner));
  }
}

Lane::~Lane() = default;

bool Lane::is_self(std::uint32_t owner) const {
  return !place_.dedicated && static_cast<Rank>(owner) == place_.rank;
}

void Lane::progress(Clock::time_point now) {
  take_orders();
  receive();
  check_pulses(now);
  run_exchanges();
  produce();
  flush();
  pace_owner();
  check_deadlines(now);
  if (leaving_) finish_leaving(now);
}

std::optional<std::chrono::milliseconds> Lane::patience(Clock::time_point now) {
  const bool readable = std::ranges::any_of(
      links_, [](const auto& link) { return link && link->connection.is_readable(); });
  if (readable || can_exchange() || owes_results()) return std::chrono::milliseconds{0};
  for (std::uint32_t owner = 0; owner < links_.size(); ++owner) {
    if (worker_.has_work(owner)) return std::chrono::milliseconds{0};
  }
  if (leaving_) return kDrainInterval;
  if (next_deadline_ == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_deadline_ - now);
  return std::clamp(left, std::chrono::milliseconds{0},
                    std::chrono::milliseconds{std::chrono::hours{1}});
}

bool Lane::finished() const { return finished_; }

void Lane::receive() {
  for (const auto& link : links_) {
    if (!link || !link->connection.is_readable()) continue;
    if (Status error = link->connection.receive(*link)) lose(*link, *error);
  }
}

// A few messages for each owner in turn: all connections are kept busy, and the look-ahead of one
// owner's chunks does not hold up another's. The first owner differs from rank to rank.
void Lane::produce() {
  const auto owners = static_cast<std::uint32_t>(links_.size());
  const auto shift = static_cast<std::uint32_t>(place_.rank) + 1;
  for (int round = 0; round < kMessagesPerRound; ++round) {
    for (std::uint32_t i = 0; i < owners; ++i) {
      const std::uint32_t owner = (i + shift) % owners;
      if (auto message = worker_.poll(owner)) send_to_owner(owner, *std::move(message));
    }
    flush();
  }
}

void Lane::flush() {
  for (const auto& link : links_) {
    if (!link || !link->connection.has_output()) continue;
    const Status error = link->connection.flush();
    if (!error) continue;
    // What the peer has said before it went names the cause better than a broken pipe does.
    link->connection.note_ready(true, false);
    if (link->connection.is_open()) (void)link->connection.receive(*link);
    lose(*link, *error);
  }
}

void Lane::count_received(const wire::FrameHeader& header) {
  if (is_of_collective(header.kind)) add(counters_.bytes_received, bytes_of(header));
}

Status Lane::accepts(const Link& link, const wire::FrameHeader& header) const {
  if (broken_) return {};
  switch (header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
      if (place_.dedicated) return protocol_error("frame: this rank owns nothing");
      return owner_->accepts(link.rank(), header);
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      if (peer_) return {};
      return protocol_error("frame: this rank takes part in no exchange here");
    case wire::FrameKind::hello:
      return protocol_error("frame: a worker does not take this kind");
    default:
      return {};
  }
}

Status Lane::on_message(Link& link, wire::Message message) {
  if (broken_) return {};
  count_received(message.header);
  switch (message.header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
      if (place_.dedicated) return protocol_error("frame: this rank owns nothing");
      message.payload = message.payload.owned();
      return on_owner_message(link.rank(), std::move(message));
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return on_worker_message(link.owner(), message);
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::part:
      return on_peer_message(link.rank(), message);
    case wire::FrameKind::abort:
    case wire::FrameKind::goodbye:
      return on_control_message(link, message);
    case wire::FrameKind::heartbeat:
      return {};
    case wire::FrameKind::silence:
      return on_silence(message);
    case wire::FrameKind::hello:
      break;
  }
  return protocol_error("frame: a worker does not take this kind");
}

Status Lane::on_owner_message(Rank rank, wire::Message message) {
  proto::Owner::Outbox outbox;
  if (Status error = owner_->on_message(rank, std::move(message), outbox)) return error;
  return broadcast(std::move(outbox));
}

// Results for a rank that reads slowly must not pile up, so the owner half pauses while they do. It
// goes on reading meanwhile: two ranks that both stopped could wait for each other for ever.
void Lane::pace_owner() {
  if (!owner_) return;
  const bool has_to_wait = is_any_behind();
  if (has_to_wait == owner_->is_paused()) return;
  proto::Owner::Outbox outbox;
  owner_->pause(has_to_wait, outbox);
  if (Status error = broadcast(std::move(outbox))) listener_.broken(*error);
  flush();
}

bool Lane::owes_results() const { return owner_ && owner_->is_paused() && !is_any_behind(); }

bool Lane::is_any_behind() const {
  return std::ranges::any_of(links_,
                             [](const auto& link) { return link && is_behind(link->connection); });
}

Status Lane::broadcast(proto::Owner::Outbox outbox) {
  for (const wire::Message& message : outbox) {
    send_to_links(message);
    if (Status error = on_worker_message(static_cast<std::uint32_t>(place_.rank), message)) {
      return error;
    }
  }
  return {};
}

Status Lane::on_worker_message(std::uint32_t owner, const wire::Message& message) {
  const std::uint64_t seq = message.header.seq;
  if (message.header.kind == wire::FrameKind::fail) {
    const auto fault = wire::decode_fault(message.payload.view());
    if (!fault) return fault.error();
    listener_.operation_failed(seq, fault->error);
    return {};
  }
  add(counters_.results_received, 1);
  const auto ended = worker_.on_result(owner, message.header, message.payload);
  if (!ended) return ended.error();
  if (*ended) end_operation(seq);
  return {};
}

Status Lane::on_peer_message(Rank rank, const wire::Message& message) {
  if (!peer_) return protocol_error("frame: this rank takes part in no exchange here");
  proto::Peer::Effects effects;
  if (Status error = peer_->on_message(rank, message, effects)) return error;
  apply(std::move(effects));
  return {};
}

bool Lane::can_exchange() const {
  return peer_ && !broken_ && peer_->has_work() && !is_any_behind();
}

// Nothing of this rank's own is begun, and nothing ends, while a rank is behind with reading: so
// little waits in memory, and little is left to send behind the end.
void Lane::run_exchanges() {
  for (int round = 0; round < kMessagesPerRound && can_exchange(); ++round) {
    proto::Peer::Effects effects;
    const auto worked = peer_->poll(effects);
    if (!worked) return listener_.broken(worked.error());
    apply(std::move(effects));
  }
}

void Lane::apply(proto::Peer::Effects effects) {
  for (proto::Outgoing& outgoing : effects.messages) {
    if (outgoing.to == kNoRank) {
      send_to_links(outgoing.message);
    } else {
      send(*links_[static_cast<std::size_t>(outgoing.to)], std::move(outgoing.message));
    }
  }
  for (const proto::PeerEvent& event : effects.events) {
    using Kind = proto::PeerEvent::Kind;
    if (event.kind == Kind::failed) listener_.operation_failed(event.seq, event.error);
    if (event.kind == Kind::ended) end_operation(event.seq);
    if (event.kind == Kind::chosen) listener_.operation_chosen(event.seq, event.route);
  }
}

Status Lane::on_control_message(const Link& link, const wire::Message& message) {
  if (message.header.kind == wire::FrameKind::abort) {
    const auto fault = wire::decode_fault(message.payload.view());
    if (!fault) return fault.error();
    listener_.broken(fault->error);
    return {};
  }
  if (message.header.chunk >= place_.topology.world_size) {
    return protocol_error("goodbye: rank out of range");
  }
  const auto rank = static_cast<Rank>(message.header.chunk);
  // Aggregators pass on the goodbyes of others, whom they have checked.
  const bool may_say_so = place_.dedicated ? rank != place_.rank : rank == link.rank();
  if (!may_say_so) return protocol_error("goodbye: of another rank");
  departed_[rank] = message.header.seq;
  check_departures();
  return {};
}

void Lane::send_to_owner(std::uint32_t owner, wire::Message message) {
  if (message.header.kind == wire::FrameKind::segment) {
    add(counters_.segments_sent, 1);
  }
  if (!is_self(owner)) {
    send(*links_[owner], std::move(message));
  } else if (Status error = on_owner_message(place_.rank, std::move(message))) {
    listener_.broken(*error);
  }
}

void Lane::send_to_links(const wire::Message& message) {
  for (const auto& link : links_) {
    if (link) send(*link, message);
  }
}

void Lane::send(Link& link, wire::Message message) {
  if (is_of_collective(message.header.kind)) add(counters_.bytes_sent, bytes_of(message.header));
  link.connection.send(std::move(message));
}

}  // namespace sparsewire::comm
