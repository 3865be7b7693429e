// Carries the messages of exchanges, in the lane's turn, and gives streams their messages.
#include "comm/lanes/lane_protocol.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

// Steps of exchanges before the connections get their turn again.
constexpr int kStepsPerRound = 8;

enum class Protocol : std::uint8_t { stream, exchange, none };

Protocol protocol_of(wire::FrameKind kind) {
  switch (kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
    case wire::FrameKind::decline:
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return Protocol::stream;
    case wire::FrameKind::refuse:
    case wire::FrameKind::join:
    case wire::FrameKind::tally:
    case wire::FrameKind::missing:
    case wire::FrameKind::part:
      return Protocol::exchange;
    default:
      return Protocol::none;
  }
}

Error is_no_peer() { return protocol_error("frame: this rank takes part in no exchange here"); }
Error is_no_worker() { return protocol_error("frame: a worker does not take this kind"); }

}  // namespace

LaneProtocol::LaneProtocol(const LanePlace& place, GroupChannels& peers, LaneBook& book,
                           LaneListener& listener)
    : place_(place),
      peers_(peers),
      book_(book),
      listener_(listener),
      streams_(place, peers, listener, [this](std::uint64_t seq) { on_stream_end(seq); }) {
  if (place.datagrams) {
    slots_ =
        std::make_unique<LaneSlots>(place, peers.counters, [this](std::uint64_t seq) { end(seq); });
  }
  if (place.dedicated) return;
  const proto::LaneShare share{place.lane, place.topology.lanes};
  if (place.has_joins()) {
    part_ = std::make_unique<proto::Peer>(place.rank, static_cast<Rank>(place.topology.world_size),
                                          place.hosts, share.lanes);
  } else {
    part_ = std::make_unique<proto::Exchanges>(share);
  }
}

// --- Operations ---

// An operation by datagrams first passes a gate at the owners, so that no datagram belongs to an
// operation on which ranks disagree.
void LaneProtocol::submit(Operation& operation) {
  const bool by_slots = slots_ && slots_->carries(operation);
  if (by_slots) {
    slots_->expect(operation);
    operation.leave_uncounted();
  }
  if (peers_.log && !operation.needs_agreement()) {
    peers_.log->note_chosen(operation.seq(), by_slots ? "datagrams" : "stream");
  }
  const bool is_here = by_slots ? streams_.submit_gate(operation) : streams_.submit(operation);
  if (!is_here) end(operation.seq());
}

void LaneProtocol::on_stream_end(std::uint64_t seq) {
  const bool is_gate = slots_ && slots_->awaits(seq);
  is_gate ? slots_->open_gate(seq, Clock::now()) : end(seq);
}

void LaneProtocol::introduce(Operation& operation) {
  const std::uint64_t seq = operation.seq();
  const Operation::Arguments& arguments = operation.arguments();
  proto::Peer::Effects effects;
  if (operation.bad_input()) {
    refuse(seq, *operation.bad_input(), effects);
  } else if (operation.needs_agreement()) {
    peer()->submit(seq, arguments.call, arguments.tensor, operation.outputs(), effects);
  } else {
    peer()->issue_stream(seq, arguments.call, effects);
  }
  apply(std::move(effects));
}

void LaneProtocol::exchange(std::uint64_t seq, const proto::ExchangeOrder& order) {
  exchanges()->begin(seq, order);
}

// Colocated ranks tell each other; dedicated owners tell all ranks.
void LaneProtocol::refuse(std::uint64_t seq, const Error& bad_input,
                          proto::Peer::Effects& effects) {
  const Error error{ErrorCode::input, place_.rank, place_.who() + ": " + bad_input.message};
  if (peer()) return peer()->refuse(seq, error, effects);
  peers_.send_to_all(wire::fault_message(wire::FrameKind::refuse, error, seq));
  effects.events.push_back({proto::PeerEvent::Kind::failed, seq, error});
}

void LaneProtocol::fail(std::uint64_t seq) {
  if (is_broken()) return;
  peers_.detach();
  streams_.cancel(seq);
  if (slots_) slots_->drop(seq, Clock::now());
  if (exchanges()) exchanges()->drop(seq);
  if (book_.has(seq)) end(seq);
}

void LaneProtocol::break_off() noexcept {
  part_ = Broken{};
  streams_.break_off();
  if (slots_) slots_->break_off();
}

void LaneProtocol::end_all() noexcept {
  while (!book_.empty()) {
    const std::uint64_t seq = book_.oldest();
    streams_.drop(seq);
    end(seq);
  }
}

void LaneProtocol::end(std::uint64_t seq) {
  book_.erase(seq);
  if (peers_.log) peers_.log->note_ended(seq);
  if (peer()) peer()->drop(seq);
  peers_.counters.chunks_empty.store(streams_.chunks_empty(), std::memory_order_relaxed);
  listener_.operation_left(seq);
}

void LaneProtocol::set_link(const proto::LinkFigures& link) {
  streams_.set_costs(proto::costs_of(link));
  if (peer()) peer()->set_link(link);
}

std::vector<Rank> LaneProtocol::missing(std::uint64_t seq) const {
  auto missing = peer()        ? peer()->missing(seq)
                 : exchanges() ? exchanges()->missing(seq)
                               : std::vector<Rank>{};
  return missing.empty() ? streams_.missing(seq) : missing;
}

bool LaneProtocol::ask(std::uint64_t seq) {
  if (!peer()) return false;
  proto::Peer::Effects effects;
  const bool asks = peer()->ask(seq, effects);
  apply(std::move(effects));
  return asks;
}

std::vector<std::uint32_t> LaneProtocol::awaited(std::uint64_t seq) const {
  std::vector<std::uint32_t> awaited = streams_.awaited(seq);
  if (peer()) std::ranges::copy(peer()->missing(seq), std::back_inserter(awaited));
  if (exchanges()) std::ranges::copy(exchanges()->missing(seq), std::back_inserter(awaited));
  return awaited;
}

// --- Frames ---

Status LaneProtocol::accepts(std::uint32_t from, const wire::FrameHeader& header) const {
  switch (protocol_of(header.kind)) {
    case Protocol::stream:
      return streams_.accepts(from, header);
    case Protocol::exchange:
      return takes(header.kind) ? Status{} : is_no_peer();
    default:
      return is_no_worker();
  }
}

bool LaneProtocol::takes(wire::FrameKind kind) const {
  return peer() || (exchanges() && kind == wire::FrameKind::part);
}

Status LaneProtocol::on_message(std::uint32_t from, wire::Message message) {
  switch (protocol_of(message.header.kind)) {
    case Protocol::stream:
      return streams_.on_message(from, std::move(message));
    case Protocol::exchange:
      if (!takes(message.header.kind)) return is_no_peer();
      return peer() ? on_peer_message(static_cast<Rank>(from), message)
                    : on_part(static_cast<Rank>(from), message);
    default:
      return is_no_worker();
  }
}

Status LaneProtocol::on_peer_message(Rank rank, const wire::Message& message) {
  proto::Peer::Effects effects;
  if (Status error = peer()->on_message(rank, message, effects)) return error;
  apply(std::move(effects));
  return {};
}

Status LaneProtocol::on_part(Rank rank, const wire::Message& message) {
  proto::Outgoings messages;
  if (Status error = exchanges()->on_part(rank, message, messages)) return error;
  send(std::move(messages));
  return {};
}

// --- Exchanges ---

// While a rank is behind with reading, no part of this rank begins, and no operation ends. So
// little waits in memory, and little is left to send after the end.
void LaneProtocol::run_exchanges() {
  for (int round = 0; round < kStepsPerRound && can_exchange(); ++round) {
    peer() ? poll_peer() : poll_exchanges();
  }
}

void LaneProtocol::watch_slots(ProgressThread& thread) {
  if (slots_) slots_->watch(thread);
}

void LaneProtocol::disown() {
  if (slots_) slots_->disown();
}

void LaneProtocol::run_slots(Clock::time_point now) {
  if (!slots_ || is_broken()) return;
  slots_->progress(now);
  const auto& ends = slots_->ends();
  for (std::uint32_t owner = 0; owner < ends.size(); ++owner) check_path(*ends[owner], owner);
}

// An aggregator that stands still does not answer datagrams, either; its connection tells that.
void LaneProtocol::check_path(SlotEnd& end, std::uint32_t owner) {
  if (const auto news = end.take_news()) listener_.datagrams_troubled(*news);
  if (end.is_lost() && !peers_.is_silent(owner)) listener_.broken(end.loss());
}

std::vector<PathSurvey> LaneProtocol::survey_paths() const {
  std::vector<PathSurvey> paths;
  if (!slots_) return paths;
  for (const auto& end : slots_->ends()) paths.push_back(end->survey());
  return paths;
}

Clock::time_point LaneProtocol::next_due() const {
  return slots_ ? slots_->next_due() : Clock::time_point::max();
}

bool LaneProtocol::has_work(Clock::time_point now) {
  return can_exchange() || streams_.can_resume() || streams_.can_produce() ||
         (slots_ && slots_->has_work(now));
}

bool LaneProtocol::is_idle() {
  return !slots_ && !has_exchange() && !streams_.is_paused() && !streams_.can_produce();
}

void LaneProtocol::poll_peer() {
  proto::Peer::Effects effects;
  const auto worked = peer()->poll(effects);
  if (!worked) return listener_.broken(worked.error());
  apply(std::move(effects));
}

void LaneProtocol::poll_exchanges() {
  proto::Outgoings messages;
  std::optional<std::uint64_t> ended;
  const auto worked = exchanges()->poll(messages, ended);
  if (!worked) return listener_.broken(worked.error());
  send(std::move(messages));
  if (ended) end(*ended);
}

bool LaneProtocol::has_exchange() const {
  return (peer() && peer()->has_work()) || (exchanges() && exchanges()->has_work());
}

bool LaneProtocol::can_exchange() const { return has_exchange() && !peers_.is_any_behind(); }

void LaneProtocol::send(proto::Outgoings messages) {
  for (proto::Outgoing& outgoing : messages) {
    if (outgoing.to == kNoRank) {
      peers_.send_to_all(outgoing.message);
    } else {
      peers_.send(static_cast<std::uint32_t>(outgoing.to), std::move(outgoing.message));
    }
  }
}

void LaneProtocol::apply(proto::Peer::Effects effects) {
  send(std::move(effects.messages));
  for (const proto::PeerEvent& event : effects.events) {
    using Kind = proto::PeerEvent::Kind;
    if (event.kind == Kind::failed) listener_.operation_failed(event.seq, event.error);
    if (event.kind == Kind::ended) end(event.seq);
    if (event.kind == Kind::chosen) {
      if (peers_.log) peers_.log->note_chosen(event.seq, wire::name_of(event.algorithm));
      listener_.operation_chosen(event.seq, event.route, event.order);
    }
  }
}

}  // namespace sparsewire::comm
