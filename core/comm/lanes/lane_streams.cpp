// Carries messages between the stream's halves and the channels, in the lane's turn.
#include "comm/lanes/lane_streams.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/stream/gate.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

Error is_no_owner() { return protocol_error("frame: this rank owns nothing"); }
Error is_no_taker() { return protocol_error("frame: this rank sends nothing to such an owner"); }

bool is_answer(wire::FrameKind kind) {
  return kind == wire::FrameKind::result || kind == wire::FrameKind::fail;
}

}  // namespace

LaneStreams::LaneStreams(const LanePlace& place, GroupChannels& peers, LaneListener& listener,
                         OnEnd on_end)
    : place_(place),
      peers_(peers),
      listener_(listener),
      on_end_(std::move(on_end)),
      worker_(place.topology, place.lane) {
  if (place.dedicated) return;
  const auto own = static_cast<std::uint32_t>(place.rank);
  owner_ = std::make_unique<proto::Owner>(
      place.topology, place.lane, own,
      proto::OwnerDuty{.speakers = place.hosts.speakers(own, place.topology.world_size),
                       .all_cancel = false,
                       .burst = peers.burst(),
                       .scratch = scratch_});
  make_deputies();
}

void LaneStreams::make_deputies() {
  deputies_.resize(place_.topology.world_size);
  deputies_due_ = deputies_paused_ = IndexSet(deputies_.size());
  for (std::uint32_t owner = 0; owner < deputies_.size(); ++owner) {
    if (!place_.is_deputy(owner)) continue;
    deputies_[owner] = std::make_unique<proto::Deputy>(
        place_.topology, place_.lane, owner, place_.hosts.ranks_beside(place_.rank), scratch_);
  }
}

bool LaneStreams::submit(Operation& operation) {
  auto source = operation.source(place_.lane, costs_, peers_.log.get());
  // Values that stay on the host are not rounded; the deputy rounds those that cross the network.
  if (!place_.hosts.has_deputies(place_.rank)) {
    source = operation.encoded(std::move(source), place_.rank);
  }
  return worker_.submit(operation.seq(), operation.stream_descriptor(), operation.grid(),
                        std::move(source), operation.sink());
}

bool LaneStreams::submit_gate(const Operation& operation) {
  return worker_.submit(operation.seq(), operation.stream_descriptor(), operation.grid(),
                        std::make_unique<proto::GateSource>(), std::make_shared<proto::GateSink>());
}

void LaneStreams::cancel(std::uint64_t seq) {
  for (const std::uint32_t owner : owners_to_cancel_at(seq)) {
    send_to_taker(
        owner,
        {{.kind = wire::FrameKind::cancel, .owner = static_cast<std::uint16_t>(owner), .seq = seq},
         {}});
  }
  drop(seq);
}

// Dedicated owners hear of every operation; ranks only of those that have chunks for them.
std::vector<std::uint32_t> LaneStreams::owners_to_cancel_at(std::uint64_t seq) const {
  if (!place_.dedicated) return worker_.opened(seq);
  std::vector<std::uint32_t> all(peers_.owners());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void LaneStreams::break_off() noexcept {
  owner_.reset();
  deputies_.clear();
  deputies_due_ = deputies_paused_ = IndexSet();
}

void LaneStreams::set_costs(const proto::Costs& costs) {
  costs_ = costs;
  if (owner_) owner_->set_costs(costs);
  for (const auto& deputy : deputies_) {
    if (deputy) deputy->set_costs(costs);
  }
}

std::vector<Rank> LaneStreams::missing(std::uint64_t seq) const {
  for (const auto& deputy : deputies_) {
    if (!deputy) continue;
    if (auto missing = deputy->missing(seq); !missing.empty()) return missing;
  }
  if (!owner_) return {};
  auto missing = owner_->missing(seq);
  // A host's speaker waits for other ranks there; only it knows which.
  std::erase_if(missing, [this](Rank rank) { return place_.hosts.has_deputies(rank); });
  return missing;
}

std::vector<Rank> LaneStreams::late_hosts(std::uint64_t seq) const {
  if (!owner_) return {};
  auto speakers = owner_->missing(seq);
  std::erase_if(speakers, [this](Rank rank) {
    return !place_.hosts.has_deputies(rank) || place_.hosts.share(rank, place_.rank);
  });
  return speakers;
}

std::vector<std::uint32_t> LaneStreams::awaited(std::uint64_t seq) const {
  std::vector<std::uint32_t> awaited = worker_.waiting_for(seq);
  for (std::uint32_t& owner : awaited) owner = place_.taker(owner);
  const auto add = [&awaited](const std::vector<Rank>& ranks) {
    awaited.insert(awaited.end(), ranks.begin(), ranks.end());
  };
  if (owner_) add(owner_->missing(seq));
  for (std::uint32_t owner = 0; owner < deputies_.size(); ++owner) {
    if (!deputies_[owner]) continue;
    add(deputies_[owner]->missing(seq));
    awaited.push_back(owner);
  }
  return awaited;
}

proto::Deputy* LaneStreams::deputy(std::uint32_t owner) const {
  return owner < deputies_.size() ? deputies_[owner].get() : nullptr;
}

// The deputy that takes frames for an owner from a rank of this host; null for ranks elsewhere.
proto::Deputy* LaneStreams::deputy_for(Rank rank, std::uint32_t owner) const {
  return place_.hosts.share(rank, place_.rank) ? deputy(owner) : nullptr;
}

bool LaneStreams::is_taker(std::uint32_t from, std::uint32_t owner) const {
  return owner < place_.topology.owners && (place_.dedicated ? owner : place_.taker(owner)) == from;
}

// --- What comes ---

Status LaneStreams::accepts(std::uint32_t from, const wire::FrameHeader& header) const {
  if (is_answer(header.kind)) return {};
  if (!owner_) return is_no_owner();
  const auto rank = static_cast<Rank>(from);
  const proto::Deputy* const deputy = deputy_for(rank, header.owner);
  return deputy ? deputy->accepts(rank, header) : owner_->accepts(rank, header);
}

std::byte* LaneStreams::place(std::uint32_t from, const wire::FrameHeader& header) const {
  if (header.kind != wire::FrameKind::result) return nullptr;
  const std::uint32_t owner = place_.dedicated ? from : header.owner;
  return is_taker(from, owner) ? worker_.place(owner, header) : nullptr;
}

Status LaneStreams::on_message(std::uint32_t from, wire::Message message) {
  if (is_answer(message.header.kind)) return on_answer(from, message);
  if (!owner_) return is_no_owner();
  message.payload = message.payload.owned();
  return on_owner_message(static_cast<Rank>(from), std::move(message));
}

Status LaneStreams::on_owner_message(Rank rank, wire::Message message) {
  const std::uint32_t owner = message.header.owner;
  proto::Deputy* const deputy = deputy_for(rank, owner);
  if (!deputy) return on_speaker_message(rank, std::move(message));
  proto::Deputy::Outbox outbox;
  if (Status error = deputy->on_message(rank, std::move(message), outbox)) return error;
  return pass_on(owner, std::move(outbox));
}

Status LaneStreams::on_speaker_message(Rank rank, wire::Message message) {
  proto::Owner::Outbox outbox;
  if (Status error = owner_->on_message(rank, std::move(message), outbox)) return error;
  return broadcast(std::move(outbox));
}

// Answers come from the taker of this rank's own values or, if this rank speaks for its host, from
// the owner.
Status LaneStreams::on_answer(std::uint32_t from, const wire::Message& message) {
  const std::uint32_t owner = place_.dedicated ? from : message.header.owner;
  if (is_taker(from, owner)) return on_worker_message(owner, message);
  if (owner != from || !deputy(owner)) return is_no_taker();
  return on_deputy_answer(owner, message);
}

Status LaneStreams::on_deputy_answer(std::uint32_t owner, const wire::Message& message) {
  proto::Deputy::Outbox outbox;
  if (Status error = deputies_[owner]->on_answer(message, outbox)) return error;
  return pass_on(owner, std::move(outbox));
}

Status LaneStreams::on_worker_message(std::uint32_t owner, const wire::Message& message) {
  const std::uint64_t seq = message.header.seq;
  if (message.header.kind == wire::FrameKind::fail) {
    return wire::take_fault(message,
                            [&](const Error& error) { listener_.operation_failed(seq, error); });
  }
  LaneCounters::add(peers_.counters.results_received, 1);
  const auto ended = worker_.on_result(owner, message.header, message.payload);
  if (!ended) return ended.error();
  if (*ended) on_end_(seq);
  return {};
}

// --- What goes ---

// Keeps all connections busy, so that the look-ahead of one owner's chunks does not hold up
// another's.
bool LaneStreams::produce() {
  const bool has_produced = produce_for_host();
  return produce_own() || has_produced;
}

// The first owner differs from rank to rank.
bool LaneStreams::produce_own() {
  bool has_produced = false;
  const std::uint32_t owners = peers_.owners();
  const auto first = (static_cast<std::uint32_t>(place_.rank) + 1) % owners;
  const auto send_from = [&](std::uint32_t from, std::uint32_t end) {
    for (std::uint32_t owner = worker_.next_with_work(from); owner < end;
         owner = worker_.next_with_work(owner + 1)) {
      auto message = worker_.poll(owner);
      if (!message) continue;
      send_to_taker(owner, *std::move(message));
      has_produced = true;
    }
  };
  send_from(first, owners);
  send_from(0, first);
  return has_produced;
}

// Sends likewise for all ranks of this host.
bool LaneStreams::produce_for_host() {
  bool has_produced = false;
  deputies_due_.for_each([&](std::size_t owner) {
    auto message = deputies_[owner]->poll();
    if (!message) {
      if (!deputies_[owner]->has_work()) deputies_due_.erase(owner);
      return;
    }
    break_on(send_up(static_cast<std::uint32_t>(owner), *std::move(message)));
    has_produced = true;
  });
  return has_produced;
}

// Called after everything that may give a deputy something to do.
void LaneStreams::note_deputy(std::uint32_t owner) {
  deputies_due_.insert(owner);
  if (deputies_[owner]->is_paused()) deputies_paused_.insert(owner);
}

// Sends a message of this rank for an owner.
void LaneStreams::send_to_taker(std::uint32_t owner, wire::Message message) {
  if (message.header.kind == wire::FrameKind::segment) {
    LaneCounters::add(peers_.counters.segments_sent, 1);
  }
  const std::uint32_t taker = place_.dedicated ? owner : place_.taker(owner);
  if (!place_.is_self(taker)) return peers_.send(taker, std::move(message));
  break_on(on_owner_message(place_.rank, std::move(message)));
}

// Sends a message of this rank's host for an owner.
Status LaneStreams::send_up(std::uint32_t owner, wire::Message message) {
  if (place_.is_self(owner)) return on_speaker_message(place_.rank, std::move(message));
  peers_.send(owner, std::move(message));
  return {};
}

Status LaneStreams::pass_on(std::uint32_t owner, proto::Deputy::Outbox outbox) {
  note_deputy(owner);
  for (wire::Message& message : outbox.up) {
    if (Status error = send_up(owner, std::move(message))) return error;
  }
  for (const wire::Message& message : outbox.down) {
    send_to_others(deputies_[owner]->ranks(), message);
    if (Status error = on_worker_message(owner, message)) return error;
  }
  return {};
}

Status LaneStreams::broadcast(proto::Owner::Outbox outbox) {
  const auto own = static_cast<std::uint32_t>(place_.rank);
  for (const wire::Message& message : outbox) {
    send_to_others(owner_->speakers(), message);
    Status error = deputy(own) ? on_deputy_answer(own, message) : on_worker_message(own, message);
    if (error) return error;
  }
  return {};
}

void LaneStreams::send_to_others(const std::vector<Rank>& ranks, const wire::Message& message) {
  for (const Rank rank : ranks) {
    if (rank != place_.rank) peers_.send(static_cast<std::uint32_t>(rank), message);
  }
}

bool LaneStreams::can_produce() {
  if (worker_.next_with_work(0) < peers_.owners()) return true;
  bool can = false;
  deputies_due_.for_each([&](std::size_t owner) { can |= deputies_[owner]->has_work(); });
  return can;
}

// Results for a rank that reads slowly must not pile up, so owners pause until it has caught up.
// Owners go on reading meanwhile: two ranks that both stopped could wait for each other for ever.
void LaneStreams::pace() {
  if (!owner_) return;
  const bool is_behind = peers_.is_any_behind();
  if (is_behind) {
    pause_deputies();
  } else {
    resume_deputies();
  }
  proto::Owner::Outbox outbox;
  owner_->pause(is_behind, outbox);
  break_on(broadcast(std::move(outbox)));
}

// Pauses them once, as long as some rank is behind.
void LaneStreams::pause_deputies() {
  if (std::exchange(is_pausing_, true)) return;
  for (std::uint32_t owner = 0; owner < deputies_.size(); ++owner) {
    if (deputies_[owner]) pause_deputy(owner, true);
  }
}

// Resumes these, and those that have paused by themselves.
void LaneStreams::resume_deputies() {
  is_pausing_ = false;
  deputies_paused_.for_each([this](std::size_t owner) {
    deputies_paused_.erase(owner);
    pause_deputy(static_cast<std::uint32_t>(owner), false);
  });
}

void LaneStreams::pause_deputy(std::uint32_t owner, bool pauses) {
  proto::Deputy::Outbox outbox;
  deputies_[owner]->pause(pauses, outbox);
  break_on(pass_on(owner, std::move(outbox)));
}

bool LaneStreams::is_paused() const {
  return (owner_ && owner_->is_paused()) || !deputies_paused_.empty();
}

bool LaneStreams::can_resume() const { return is_paused() && !peers_.is_any_behind(); }

void LaneStreams::break_on(const Status& error) {
  if (error) listener_.broken(*error);
}

}  // namespace sparsewire::comm
