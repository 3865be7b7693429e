// Takes orders from other threads and frames of the group, and brings it to its end.
#include "comm/lanes/lane_group.hpp"

#include <algorithm>
#include <utility>

#include "comm/progress/exceptions.hpp"

namespace sparsewire::comm {

LaneGroup::LaneGroup(const LanePlace& place, std::uint32_t number,
                     const std::vector<std::uint32_t>& members, GroupHost& lane,
                     LaneListener& listener)
    : place_(place),
      lane_(lane),
      listener_(listener),
      members_(members),
      peers_(place_, lane.channels(), number, members),
      has_left_(members.size()) {}

// --- Orders ---

// Calls after the end are dropped.
template <typename Call>
void LaneGroup::post(Call&& call, ProgressThread::Wake when) {
  lane_.post(
      [self = shared_from_this(), call = std::forward<Call>(call)] {
        self->lane_.welcome();
        if (self->life_ == GroupLife::ended) return;
        self->lane_.make_busy(*self);
        self->contain(call);
      },
      when);
}

// See Communicator::wait().
ProgressThread::Wake LaneGroup::wake_for(const Operation& operation,
                                         ProgressThread::Wake when) const {
  const bool will_work = when == ProgressThread::Wake::not_yet &&
                         operation.arguments().is_awaited && place_.lane == operation.main_lane();
  return will_work ? ProgressThread::Wake::not_yet : ProgressThread::Wake::now;
}

void LaneGroup::submit(std::shared_ptr<Operation> operation, ProgressThread::Wake when) {
  const auto wake = wake_for(*operation, when);
  post(
      [this, operation = std::move(operation)] {
        const bool is_here = place_.has_joins() ? book_.has(operation->seq()) : take_on(operation);
        if (is_here) protocol_.submit(*operation);
      },
      wake);
}

void LaneGroup::introduce(std::shared_ptr<Operation> operation) {
  const auto wake = wake_for(*operation, ProgressThread::Wake::not_yet);
  post(
      [this, operation = std::move(operation)] {
        if (take_on(operation)) protocol_.introduce(*operation);
      },
      wake);
}

void LaneGroup::exchange(std::shared_ptr<Operation> operation, LaneListener::Order order) {
  post([this, operation = std::move(operation), order = std::move(order)] {
    if (take_on(operation)) protocol_.exchange(operation->seq(), *order);
  });
}

void LaneGroup::set_link(const proto::LinkFigures& link) {
  post([this, link] { protocol_.set_link(link); });
}

void LaneGroup::survey(std::size_t most_operations,
                       const std::shared_ptr<std::promise<LaneSurvey>>& answer) {
  post([this, most_operations, answer] {
    answer->set_value({waits_.all_awaited(most_operations), peers_.survey(Clock::now()),
                       protocol_.survey_paths()});
  });
}

void LaneGroup::fail(std::uint64_t seq) {
  post([this, seq] { protocol_.fail(seq); });
}

void LaneGroup::wake() { lane_.wake(); }

bool LaneGroup::work(const std::function<bool()>& is_done, Clock::time_point until) {
  return lane_.work(is_done, until);
}

template <typename Give>
void LaneGroup::order(Give&& give) noexcept {
  {
    const std::lock_guard lock(mutex_);
    give();
  }
  lane_.note_order();
}

void LaneGroup::break_off(Error error) noexcept {
  order([&] { orders_.to_break = std::move(error); });
}

void LaneGroup::leave(std::uint64_t issued, Clock::duration linger) noexcept {
  order([&] { orders_.to_leave = {issued, linger}; });
}

void LaneGroup::take_orders(Clock::time_point now) {
  Orders orders;
  {
    const std::lock_guard lock(mutex_);
    orders = std::exchange(orders_, {});
  }
  if (orders.to_break) do_break_off(*orders.to_break);
  if (orders.to_leave) begin_leaving(*orders.to_leave, now);
}

// --- Operations ---

void LaneGroup::begin() {
  if (!place_.dedicated) return;
  for (std::uint32_t owner = 0; owner < peers_.owners(); ++owner) {
    const auto hello = wire::encode_hello({place_.topology, place_.lane, owner});
    peers_.send(owner, wire::message_of({.kind = wire::FrameKind::hello}, hello));
  }
}

// From here on the lane ends the operation, whatever happens. False if it has ended at once.
bool LaneGroup::take_on(const std::shared_ptr<Operation>& operation) {
  try {
    if (!is_broken()) {
      book_.add(operation);
      if (peers_.log) peers_.log->note_begun(operation->seq());
    }
  } catch (const std::exception& exception) {
    on_exception(exception);
  }
  if (is_broken()) {
    listener_.operation_left(operation->seq());
    return false;
  }
  break_on(book_.abandoned());
  return true;
}

bool LaneGroup::produce() {
  return protocol_.streams().produce() || protocol_.streams().can_produce();
}

void LaneGroup::check_deadlines(Clock::time_point now) { break_on(waits_.overdue(now)); }

void LaneGroup::note_waiting(Clock::time_point now) {
  if (!peers_.log) return;
  if (book_.empty() || protocol_.has_work(now)) return peers_.log->note_busy(now);
  const std::uint64_t oldest = book_.oldest();
  peers_.log->note_waiting(oldest, waits_.awaited(oldest), now);
}

void LaneGroup::break_on(const Status& error) {
  if (error) listener_.broken(*error);
}

void LaneGroup::look_for_missing() {
  const auto oldest = book_.empty() ? std::nullopt : std::optional(book_.oldest());
  const bool has_waited = oldest && last_looked_ == oldest;
  last_looked_ = oldest;
  if (!has_waited || is_broken() || place_.dedicated) return;
  for (const std::uint32_t owner : protocol_.awaited(*oldest)) peers_.ask(owner);
}

// The first time, all ranks are told; if even that fails, the connections to them close.
void LaneGroup::on_exception(const std::exception& exception) noexcept {
  if (is_broken()) return;
  const Error error = error_of(exception, place_.rank);
  listener_.broken(safe_copy(error));
  do_break_off(error);
}

// --- Frames ---

void LaneGroup::on_active(PeerChannel& channel) {
  if (has(channel) && farewell_) tell(channel);
}

Status LaneGroup::accepts(const PeerChannel& from, const wire::FrameHeader& header) const {
  if (is_broken() || wire::is_control(header.kind)) return {};
  return protocol_.accepts(peers_.owner_of(from), header);
}

std::byte* LaneGroup::place(const PeerChannel& from, const wire::FrameHeader& header) const {
  return protocol_.streams().place(peers_.owner_of(from), header);
}

Status LaneGroup::on_message(PeerChannel& from, wire::Message message) {
  if (is_broken()) return {};
  peers_.count_received(message.header);
  switch (message.header.kind) {
    case wire::FrameKind::abort:
      return wire::take_fault(message, [this](const Error& error) { listener_.broken(error); });
    case wire::FrameKind::goodbye:
      return on_goodbye(from, message.header);
    case wire::FrameKind::silence:
      return on_others_silence(message.header);
    default:
      return protocol_.on_message(peers_.owner_of(from), std::move(message));
  }
}

// Aggregators check the goodbyes of other ranks, and pass them on.
Status LaneGroup::on_goodbye(PeerChannel& from, const wire::FrameHeader& header) {
  if (header.chunk >= place_.topology.world_size) {
    return protocol_error("goodbye: rank out of range");
  }
  const auto rank = static_cast<Rank>(header.chunk);
  const bool may_say_so = place_.dedicated ? rank != place_.rank : rank == peers_.rank_of(from);
  if (!may_say_so) return protocol_error("goodbye: of another rank");
  if (!place_.dedicated) has_left_[peers_.owner_of(from)] = true;
  book_.note_departure(rank, header.seq);
  break_on(book_.abandoned());
  return {};
}

// Workers see each other through their aggregators only.
Status LaneGroup::on_others_silence(const wire::FrameHeader& header) {
  if (!place_.dedicated || header.chunk >= place_.topology.world_size) {
    return protocol_error("silence: not from an aggregator, or of a rank out of range");
  }
  const auto rank = static_cast<Rank>(header.chunk);
  const proto::Milliseconds lasted{header.seq};
  listener_.peer_silent({"rank " + std::to_string(rank), rank, lasted, lasted.count() == 0});
  return {};
}

// --- Peers that are silent or lost ---

void LaneGroup::on_silence(const PeerChannel& channel, const proto::Pulse::News& news) {
  listener_.peer_silent({peers_.name_of(channel), peers_.rank_of(channel), news.silence,
                         news.state == proto::Pulse::State::alive});
}

bool LaneGroup::may_go(const PeerChannel& channel) const {
  return life_ != GroupLife::working || has_left_[peers_.owner_of(channel)];
}

// A peer that has said goodbye may close. If another one goes, or sends nonsense, all ends.
void LaneGroup::on_lost(PeerChannel& channel, const Error& error) {
  if (may_go(channel) || is_broken()) return;
  const Rank rank = peers_.rank_of(channel);
  listener_.broken({error.code, rank, "lost " + peers_.name_of(channel) + ": " + error.message});
}

void LaneGroup::on_lost_untold(const PeerChannel& channel) noexcept {
  if (may_go(channel) || is_broken()) return;
  listener_.broken({ErrorCode::resources, place_.rank, "out of memory"});
}

void LaneGroup::say_lost(PeerChannel& channel, const Error& error) {
  if (is_broken()) return;
  wire::Message words = wire::fault_message(
      wire::FrameKind::abort,
      {error.code, peers_.rank_of(channel),
       place_.who() + " lost " + peers_.name_of(channel) + ": " + error.message});
  words.header.group = number();
  channel.connection.drop_unsent(number());
  channel.connection.detach(number());
  channel.connection.send(std::move(words));
}

// --- The end ---

// Last words to all peers. Channels may still use memory that its owners want back.
void LaneGroup::do_break_off(const Error& error) noexcept {
  if (is_broken()) return;
  protocol_.break_off();
  for (PeerChannel* channel : lane_.channels().active()) {
    if (!has(*channel)) continue;
    const auto let_go = [&]() -> Status {
      channel->connection.drop_unsent(number());
      channel->connection.detach(number());
      return {};
    };
    if (guarded(let_go)) lane_.lose_untold(*channel);
  }
  const auto say = [&]() -> Status {
    prepare_farewell(wire::fault_message(wire::FrameKind::abort, error));
    return {};
  };
  if (guarded(say)) lose_peers();
  protocol_.end_all();
}

// Other groups lose these peers, too: there is no memory for a better way.
void LaneGroup::lose_peers() noexcept {
  for (PeerChannel* channel : lane_.channels().active()) {
    if (has(*channel)) lane_.lose_untold(*channel);
  }
}

void LaneGroup::begin_leaving(const Leave& order, Clock::time_point now) {
  move(GroupStep::leave);
  leaving_ = {.linger = order.linger, .until = now + order.linger};
  if (is_broken()) return;
  prepare_farewell({{.kind = wire::FrameKind::goodbye,
                     .seq = order.issued,
                     .chunk = static_cast<std::uint64_t>(place_.rank)},
                    {}});
}

// Tells all connected members; others are told once they are connected.
void LaneGroup::prepare_farewell(wire::Message words) {
  words.header.group = number();
  farewell_ = Farewell{std::move(words), IndexSet(lane_.channels().peers())};
  for (std::uint32_t owner = 0; owner < members_.size(); ++owner) {
    if (!place_.is_self(owner)) farewell_->untold.insert(members_[owner]);
  }
  for (PeerChannel* channel : lane_.channels().active()) {
    if (has(*channel)) tell(*channel);
  }
}

void LaneGroup::tell(PeerChannel& channel) noexcept {
  const auto say = [&]() -> Status {
    farewell_->tell(channel);
    return {};
  };
  if (guarded(say)) lane_.lose_untold(channel);
}

// As long as bytes move, some peer still reads them.
void LaneGroup::finish_leaving(Clock::time_point now) {
  if (life_ != GroupLife::leaving) return;
  // What was posted before the order may have come behind this turn's calls.
  if (!std::exchange(leaving_.has_all_calls, true)) return lane_.wake();
  std::size_t left = leaving_.undelivered;  // where there is no memory to find out
  (void)guarded([&]() -> Status {
    left = undelivered();
    return {};
  });
  if (left < leaving_.undelivered) {
    leaving_.undelivered = left;
    leaving_.until = now + leaving_.linger;
  }
  if (left == 0 || now >= leaving_.until) move(GroupStep::finish);
}

// Undelivered bytes of the group's frames, whatever other groups send after them.
std::size_t LaneGroup::undelivered() {
  std::size_t total = 0;
  for (const PeerChannel* channel : lane_.channels().active()) {
    const net::Connection& connection = channel->connection;
    if (!has(*channel) || connection.is_closed()) continue;
    const std::size_t queued = connection.queued_bytes(number());
    if (queued != 0) {
      leaving_.sent_by.erase(channel->peer);
      total += queued + connection.undelivered_bytes();
      continue;
    }
    const auto sent = leaving_.sent_by.try_emplace(channel->peer, connection.bytes_sent()).first;
    total += connection.undelivered_of(sent->second);
  }
  return total;
}

void LaneGroup::await_end() {
  for (auto life = life_.load(); life != GroupLife::ended; life = life_) life_.wait(life);
}

Farewell LaneGroup::take_farewell() {
  return farewell_ ? *std::exchange(farewell_, {}) : Farewell{};
}

void LaneGroup::end() {
  move(GroupStep::end);
  life_.notify_all();
}

}  // namespace sparsewire::comm
