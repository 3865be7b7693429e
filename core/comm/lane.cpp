// The rounds of a lane's thread: frames in and out, signs of life, and the way to its end.
#include "comm/lane.hpp"

#include <algorithm>
#include <utility>

#include "comm/exceptions.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

// Messages to every owner, before the lane looks at what has come.
constexpr int kRoundsToSend = 8;

constexpr std::chrono::milliseconds kDrainInterval{1};

// See Communicator::wait().
ProgressThread::Wake wake_for(const Operation& operation, std::uint32_t lanes) {
  const bool will_work = operation.arguments().is_awaited && lanes == 1;
  return will_work ? ProgressThread::Wake::not_yet : ProgressThread::Wake::now;
}

// Last words to a peer. It may still lend memory that its owners want back.
void say_last_words(Channel& channel, const Error& error) noexcept {
  try {
    channel.connection.drop_unsent();
    channel.connection.detach();
    channel.connection.send(wire::fault_message(wire::FrameKind::abort, error));
  } catch (const std::exception&) {
    channel.connection.close();
  }
}

}  // namespace

class Lane::PeerChannel final : public Channel {
 public:
  // `owner` is a rank where owners are colocated.
  PeerChannel(Lane& lane, std::uint32_t owner, int fd)
      : Channel(lane.place_.dedicated ? kNoRank : static_cast<Rank>(owner), fd),
        owner(owner),
        lane_(lane) {
    pulse.emplace(patience_of(lane.place_.topology));
    connection.expect_answers_within(patience_of(lane.place_.topology));
  }

  Status accepts(const wire::FrameHeader& header) override {
    if (lane_.protocol_.is_broken() || wire::is_control(header.kind)) return {};
    return lane_.protocol_.accepts(owner, header);
  }
  std::byte* place(const wire::FrameHeader& header) override {
    return lane_.protocol_.place(owner, header);
  }
  Status on_message(wire::Message message) override {
    return lane_.on_message(*this, std::move(message));
  }

  const std::uint32_t owner;

 private:
  Lane& lane_;
};

Lane::Lane(const Place& place, std::span<int> sockets, LaneListener& listener)
    : place_(place), listener_(listener), metronome_(patience_of(place.topology)), thread_(*this) {
  // Twice as often as it looks, so that no look is late by a whole interval.
  if (place.has_pulse()) thread_.tick_every(metronome_.interval() / 2);
  peers_.reserve(sockets.size());
  for (std::uint32_t owner = 0; owner < sockets.size(); ++owner) {
    const bool is_self = place.is_self(owner);
    peers_.add(is_self ? nullptr : std::make_unique<PeerChannel>(*this, owner, sockets[owner]));
    if (is_self) continue;
    sockets[owner] = -1;
    thread_.watch(peers_.of(owner).connection);
    if (!place.dedicated) continue;
    const auto hello = wire::encode_hello({place.topology, place.lane, owner});
    peers_.send(owner, wire::message_of({.kind = wire::FrameKind::hello}, hello));
  }
}

void Lane::submit(std::shared_ptr<Operation> operation) {
  const auto wake = wake_for(*operation, place_.topology.lanes);
  thread_.post(
      [this, operation = std::move(operation)] {
        const bool is_here =
            place_.has_exchanges() ? book_.has(operation->seq()) : take_on(operation);
        if (is_here) protocol_.submit(*operation);
      },
      wake);
}

void Lane::introduce(std::shared_ptr<Operation> operation) {
  const auto wake = wake_for(*operation, place_.topology.lanes);
  thread_.post(
      [this, operation = std::move(operation)] {
        if (take_on(operation)) protocol_.introduce(*operation);
      },
      wake);
}

void Lane::set_link(const proto::LinkFigures& link) {
  thread_.post([this, link] { protocol_.set_link(link); });
}

void Lane::fail(std::uint64_t seq) {
  thread_.post([this, seq] { protocol_.fail(seq); });
}

template <typename Give>
void Lane::order(Give&& give) noexcept {
  {
    const std::lock_guard lock(mutex_);
    give();
  }
  thread_.wake();
}

void Lane::break_off(Error error) noexcept {
  order([&] { orders_.to_break = std::move(error); });
}

void Lane::leave(std::uint64_t issued, Clock::duration linger) noexcept {
  order([&] { orders_.to_leave = {issued, linger}; });
}

void Lane::disown() {
  for (const auto& peer : peers_) peer->connection.disown();
  thread_.disown();
}

void Lane::progress(Clock::time_point now) {
  take_orders(now);
  receive();
  if (place_.has_pulse()) {
    check_pulses(metronome_, now, peers_,
                 [this](Channel& channel, const auto& news) { on_news(channel, news); });
  }
  protocol_.run_exchanges();
  produce();
  protocol_.pace_owners();
  flush();
  break_on(book_.overdue(now, protocol_));
  if (leaving_) finish_leaving(now);
}

std::optional<std::chrono::milliseconds> Lane::patience(Clock::time_point now) {
  if (peers_.is_any_readable() || protocol_.has_work()) return std::chrono::milliseconds{0};
  if (leaving_) return kDrainInterval;
  const Clock::time_point deadline = book_.next_deadline();
  if (deadline == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  return std::clamp(left, std::chrono::milliseconds{0},
                    std::chrono::milliseconds{std::chrono::hours{1}});
}

// The first time all ranks are told; where even that cannot be done, the ends of the connections
// tell them.
void Lane::on_exception(const std::exception& exception) noexcept {
  if (protocol_.is_broken()) return close_all();
  const Error error = error_of(exception, place_.rank);
  listener_.broken(safe_copy(error));
  do_break_off(error);
}

// From here on the lane ends the operation, whatever happens. False where it has ended at once.
bool Lane::take_on(const std::shared_ptr<Operation>& operation) {
  try {
    if (!protocol_.is_broken()) book_.add(operation);
  } catch (const std::exception& exception) {
    on_exception(exception);
  }
  if (protocol_.is_broken()) {
    listener_.operation_left(operation->seq());
    return false;
  }
  break_on(book_.abandoned());
  return true;
}

void Lane::break_on(const Status& error) {
  if (error) listener_.broken(*error);
}

// --- Frames ---

void Lane::receive() {
  for (const auto& peer : peers_) {
    if (!peer->connection.is_readable()) continue;
    if (Status error = peer->connection.receive(*peer)) lose(*peer, *error);
  }
}

void Lane::produce() {
  for (int round = 0; round < kRoundsToSend; ++round) {
    const bool is_done = !protocol_.produce() && !protocol_.can_produce();
    flush();
    if (is_done) return;
  }
}

void Lane::flush() {
  for (const auto& peer : peers_) {
    if (!peer->connection.has_output()) continue;
    const Status error = peer->connection.flush();
    if (!error) continue;
    // What the peer has said before it went names the cause better than a broken pipe does.
    peer->connection.note_ready(true, false);
    if (peer->connection.is_open()) (void)peer->connection.receive(*peer);
    lose(*peer, *error);
  }
}

Status Lane::on_message(PeerChannel& from, wire::Message message) {
  if (protocol_.is_broken()) return {};
  peers_.counters.count_received(message.header);
  switch (message.header.kind) {
    case wire::FrameKind::abort:
      return wire::take_fault(message, [this](const Error& error) { listener_.broken(error); });
    case wire::FrameKind::goodbye:
      return on_goodbye(from, message.header);
    case wire::FrameKind::heartbeat:
      return {};
    case wire::FrameKind::silence:
      return on_silence(message.header);
    default:
      return protocol_.on_message(from.owner, std::move(message));
  }
}

// Aggregators pass on the goodbyes of others, whom they have checked.
Status Lane::on_goodbye(PeerChannel& from, const wire::FrameHeader& header) {
  if (header.chunk >= place_.topology.world_size) {
    return protocol_error("goodbye: rank out of range");
  }
  const auto rank = static_cast<Rank>(header.chunk);
  const bool may_say_so = place_.dedicated ? rank != place_.rank : rank == from.rank;
  if (!may_say_so) return protocol_error("goodbye: of another rank");
  from.has_left = !place_.dedicated;
  book_.note_departure(rank, header.seq);
  break_on(book_.abandoned());
  return {};
}

// Workers see each other through their aggregators only.
Status Lane::on_silence(const wire::FrameHeader& header) {
  if (!place_.dedicated || header.chunk >= place_.topology.world_size) {
    return protocol_error("silence: not from an aggregator, or of a rank out of range");
  }
  const auto rank = static_cast<Rank>(header.chunk);
  const proto::Milliseconds lasted{header.seq};
  listener_.peer_silent({"rank " + std::to_string(rank), rank, lasted, lasted.count() == 0});
  return {};
}

// --- Peers that are silent or lost ---

// One that is lost is told, too, in case that it thaws one day.
void Lane::on_news(Channel& channel, const proto::Pulse::News& news) {
  using State = proto::Pulse::State;
  if (news.state != State::lost) {
    return listener_.peer_silent(
        {channel.name(), channel.rank, news.silence, news.state == State::alive});
  }
  const std::string text = describe_silence(news.silence);
  say_last_words(channel, {ErrorCode::peer_lost, channel.rank,
                           place_.who() + " lost " + channel.name() + ": " + text});
  (void)channel.connection.flush();
  lose(channel, {ErrorCode::peer_lost, channel.rank, text});
}

// A peer that has said goodbye may close; any other that goes, or that talks nonsense, ends all.
void Lane::lose(Channel& channel, const Error& error) {
  const bool may_go = leaving_ || channel.has_left;
  const bool is_told = error.code == ErrorCode::protocol && !may_go;
  is_told ? channel.connection.ignore_input() : channel.connection.close();
  if (may_go || protocol_.is_broken()) return;
  listener_.broken({error.code, channel.rank, "lost " + channel.name() + ": " + error.message});
}

// --- The end ---

void Lane::take_orders(Clock::time_point now) {
  Orders orders;
  {
    const std::lock_guard lock(mutex_);
    orders = std::exchange(orders_, {});
  }
  if (orders.to_break) do_break_off(*orders.to_break);
  if (orders.to_leave) begin_leaving(*orders.to_leave, now);
}

void Lane::do_break_off(const Error& error) noexcept {
  if (protocol_.is_broken()) return;
  protocol_.break_off();
  for (const auto& peer : peers_) say_last_words(*peer, error);
  protocol_.end_all();
}

void Lane::begin_leaving(const Leave& order, Clock::time_point now) {
  leaving_ = {.linger = order.linger, .until = now + order.linger};
  if (protocol_.is_broken()) return;
  peers_.send_to_all({{.kind = wire::FrameKind::goodbye,
                       .seq = order.issued,
                       .chunk = static_cast<std::uint64_t>(place_.rank)},
                      {}});
}

// As long as bytes move, somebody still reads them.
void Lane::finish_leaving(Clock::time_point now) {
  std::size_t undelivered = 0;
  for (const auto& peer : peers_) undelivered += peer->connection.undelivered_bytes();
  if (undelivered < leaving_->undelivered) {
    leaving_->undelivered = undelivered;
    leaving_->until = now + leaving_->linger;
  }
  is_finished_ = undelivered == 0 || now >= leaving_->until;
  if (is_finished_) close_all();
}

void Lane::close_all() noexcept {
  for (const auto& peer : peers_) peer->connection.close();
}

}  // namespace sparsewire::comm
