// The turns of a lane: connections and frames in and out, each group's turn, signs of
// life.
#include "comm/lanes/lane.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/progress/exceptions.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {
namespace {

// How many messages go to every owner before the lane looks at its input.
constexpr int kRoundsToSend = 8;

constexpr std::chrono::milliseconds kDrainInterval{1};

}  // namespace

Lane::Lane(const MeshPlace& place, std::uint32_t number, std::span<int> sockets,
           MeshListener& listener)
    : place_(place),
      number_(number),
      listener_(listener),
      channels_(place.peers, !place.dedicated, place.share,
                [this](PeerChannel& channel) { on_asked(channel); }),
      metronome_(place.patience, place.peers),
      thread_(*this) {
  // Ticks twice as often as the lane looks, so that no look is late by a whole interval.
  if (!place.is_alone()) thread_.tick_every(metronome_.interval() / 2);
  for (std::uint32_t peer = 0; peer < sockets.size(); ++peer) {
    if (sockets[peer] < 0) continue;
    PeerChannel& channel = channels_.of(peer);
    connect(channel, std::exchange(sockets[peer], -1));
  }
}

void Lane::start() {
  const auto& processors = place_.processors;
  thread_.start(number_ < processors.size() ? std::optional(processors[number_]) : std::nullopt);
}

// --- Groups and connections that come ---

// The joining thread allocates the memory.
void Lane::join(const std::shared_ptr<LaneGroup>& group) {
  Groups one{{group->number(), group}};
  {
    const std::lock_guard lock(mutex_);
    arrivals_.merge(one);
    has_arrivals_ = true;
  }
  wake();
}

void Lane::welcome() {
  if (!has_arrivals_) return;
  Groups arrivals;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    has_arrivals_ = false;
  }
  while (!arrivals.empty()) {
    LaneGroup& group = *groups_.insert(arrivals.extract(arrivals.begin())).position->second;
    make_busy(group);
    group.contain([&] { take_in(group); });
    has_orders_ = true;  // The group may have got orders before it was here.
  }
}

void Lane::take_in(LaneGroup& group) {
  unknown_.erase(group.number());
  farewells_.expect(group.number());
  for (PeerChannel* channel : channels_.active()) {
    if (!group.has(*channel)) continue;
    channel->is_excused = false;
    if (channel->dial() == Dial::lost) {
      group.on_lost(*channel, {ErrorCode::peer_lost, kNoRank, "its connection was lost before"});
    }
  }
  group.begin();
  group.watch_slots(thread_);
  resume_reading();
}

void Lane::fail_group(std::uint32_t number, const std::vector<std::uint32_t>& members,
                      Error error) {
  post([this, number, members, error = std::move(error)] {
    welcome();
    if (!find(number) && !farewells_.has_ended(number)) end_unknown(number, members, error);
  });
}

void Lane::end_unknown(std::uint32_t number, const std::vector<std::uint32_t>& members,
                       const Error& error) {
  if (members.empty()) return refuse_unknown(number, error);
  Farewell farewell = farewell_of(number, error);
  for (const std::uint32_t peer : members) {
    if (!place_.is_self(peer)) farewell.untold.insert(peer);
  }
  for (PeerChannel* channel : channels_.active()) farewell.tell(*channel);
  farewells_.leave(number, std::move(farewell));
  forget_unknown(number);
}

void Lane::resume_reading() {
  for (PeerChannel* channel : channels_.active()) channel->connection.resume();
}

void Lane::adopt(std::uint32_t peer, int fd) {
  // Shared, so that the socket is closed even if the thread has ended and drops the call.
  const auto socket = std::make_shared<net::Sockets>(std::vector<std::vector<int>>{{fd}});
  post([this, peer, socket] {
    PeerChannel& channel = channels_.of(peer);
    const Dial dial = channel.dial();
    if (dial == Dial::connected || dial == Dial::lost) return;
    const Status error = guarded([&]() -> Status {
      connect(channel, std::exchange(socket->of_lane(0)[0], -1));
      return {};
    });
    if (error) return lose(channel, *error);
    if (channel.pulse) channel.pulse->begin(milliseconds_of(Clock::now()));
    tell_farewells(channel);
  });
}

void Lane::connect(PeerChannel& channel, int fd) {
  std::unique_ptr<net::Pipe> pipe;
  try {
    pipe = open_pipe(fd, place_.share.ring);
  } catch (...) {
    ::close(fd);
    throw;
  }
  channel.connection.attach(std::move(pipe));
  channels_.adopt(channel);
  ++connections_;
  channel.connection.expect_answers_within(place_.patience);
  if (place_.has_losses) channel.connection.expect_losses();
  if (has_pulse() && !channel.pulse) channel.pulse.emplace(place_.patience, place_.peers);
  thread_.watch(channel.connection);
}

void Lane::ask(std::uint32_t peer) {
  post([this, peer] { channels_.ask(peer); });
}

// A peer that does not answer is lost like a silent one.
void Lane::note_call(std::uint32_t peer) {
  post([this, peer] {
    const bool is_dialling = channels_.dial(peer) == Dial::dialling;
    if (is_dialling && has_pulse()) channels_.of(peer).pulse->begin(milliseconds_of(Clock::now()));
  });
}

void Lane::on_asked(PeerChannel& channel) {
  if (has_pulse()) channel.pulse.emplace(place_.patience, place_.peers);
  listener_.on_asked(channel.peer);
  tell_farewells(channel);
}

void Lane::give_up(std::uint32_t peer, Error error) {
  post([this, peer, error = std::move(error)] {
    if (channels_.dial(peer) != Dial::dialling) return;
    lose(channels_.of(peer), error);
  });
}

// The peer may have had no connection when a group here ended.
void Lane::tell_farewells(PeerChannel& channel) {
  for (const auto& [number, group] : groups_) group->on_active(channel);
  farewells_.tell(channel);
}

void Lane::stop() noexcept {
  stops_ = true;
  wake();
}

void Lane::disown() {
  for (PeerChannel* channel : channels_.active()) channel->connection.disown();
  for (const auto& [number, group] : groups_) group->disown();
  thread_.disown();
}

// --- Rounds ---

// An exception in a group's call ends that group alone.
template <typename Call>
void Lane::for_each_busy(Call&& call) {
  for (LaneGroup* const group : busy_) group->contain([&] { call(*group); });
}

void Lane::progress(Clock::time_point now) {
  welcome();
  take_orders(now);
  receive();
  look_around(now);
  for_each_busy([now](LaneGroup& group) {
    group.run_slots(now);
    group.run_exchanges();
  });
  produce();
  for_each_busy([](LaneGroup& group) { group.pace(); });
  flush();
  for_each_busy([now](LaneGroup& group) {
    group.check_deadlines(now);
    group.note_waiting(now);
    group.finish_leaving(now);
  });
  forget_finished();
  rest_idle();
  if (!stops_ || !groups_.empty()) return;
  lose_all();
  is_finished_ = true;
}

// Orders are rare, and so not worth a list of their own.
void Lane::take_orders(Clock::time_point now) {
  if (!has_orders_.exchange(false)) return;
  for (const auto& [number, group] : groups_) {
    make_busy(*group);
    group->contain([&] { group->take_orders(now); });
  }
}

std::optional<std::chrono::milliseconds> Lane::patience(Clock::time_point now) {
  if (channels_.is_any_readable()) return std::chrono::milliseconds{0};
  Clock::time_point deadline = Clock::time_point::max();
  bool is_leaving = false;
  for (LaneGroup* const group : busy_) {
    if (group->has_work(now)) return std::chrono::milliseconds{0};
    is_leaving |= group->life() == GroupLife::leaving;
    deadline = std::min(deadline, group->next_due());
  }
  if (is_leaving) return kDrainInterval;
  if (deadline == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  return std::clamp(left, std::chrono::milliseconds{0},
                    std::chrono::milliseconds{std::chrono::hours{1}});
}

// The exception is the lane's own: from memory for input, signs of life or posted calls, or from
// the system call by which it waits. The first time, all ranks of all groups are told; if even that
// fails, the ends of the connections tell them.
void Lane::on_exception(const std::exception& exception) noexcept {
  const bool is_told =
      std::ranges::all_of(groups_, [](const auto& one) { return one.second->is_broken(); });
  if (is_told) return lose_all();
  for (const auto& [number, group] : groups_) group->on_exception(exception);
}

void Lane::receive() {
  channels_.for_each_readable([this](PeerChannel& channel) {
    if (Status error = channel.connection.receive(*this)) lose(channel, *error);
  });
}

void Lane::produce() {
  for (int round = 0; round < kRoundsToSend; ++round) {
    bool has_more = false;
    for_each_busy([&](LaneGroup& group) { has_more |= group.produce(); });
    flush();
    if (!has_more) return;
  }
}

void Lane::flush() {
  channels_.for_each_writable([this](PeerChannel& channel) {
    if (Status error = comm::flush(channel.connection, *this)) lose(channel, *error);
  });
}

void Lane::look_around(Clock::time_point now) {
  const bool is_time =
      check_pulses(metronome_, now, channels_.active(), [this](Channel& channel, const auto& news) {
        on_news(static_cast<PeerChannel&>(channel), news);
      });
  if (!is_time || place_.is_alone()) return;
  settle();
  give_up_unknown(now);
  for_each_busy([](LaneGroup& group) { group.look_for_missing(); });
}

// Retries what the system has refused when peers were connected.
void Lane::settle() {
  for (PeerChannel* channel : channels_.active()) {
    if (Status error = channel->connection.settle()) lose(*channel, *error);
  }
}

void Lane::forget_finished() {
  for (auto at = busy_.begin(); at != busy_.end();) {
    const auto current = at++;
    LaneGroup& group = **current;
    if (group.life() != GroupLife::finished) continue;
    group.idle_entry().splice(group.idle_entry().end(), busy_, current);
    bury(group);
  }
}

void Lane::bury(LaneGroup& group) {
  if (recent_ == &group) recent_ = nullptr;
  // If no memory is left for this, no other peer hears of the end any more.
  (void)guarded([&]() -> Status {
    farewells_.note_end(group.number());
    farewells_.leave(group.number(), group.take_farewell());
    return {};
  });
  const auto last = groups_.extract(group.number());
  group.end();
}

void Lane::rest_idle() {
  for (auto at = busy_.begin(); at != busy_.end();) {
    const auto current = at++;
    LaneGroup& group = **current;
    if (group.is_idle()) group.idle_entry().splice(group.idle_entry().end(), busy_, current);
  }
  busy_count_ = busy_.size();
}

// --- Frames ---

LaneGroup* Lane::find(std::uint32_t number) {
  if (recent_ && recent_->number() == number) return recent_;
  const auto at = groups_.find(number);
  if (at == groups_.end()) return nullptr;
  return recent_ = at->second.get();
}

LaneGroup* Lane::find(std::uint32_t number, const PeerChannel& member) {
  LaneGroup* const group = find(number);
  return group && group->has(member) ? group : nullptr;
}

// Other ranks may have joined a group earlier than this rank.
bool Lane::is_ready_for(const wire::FrameHeader& header) {
  if (header.kind == wire::FrameKind::heartbeat || find(header.group)) return true;
  if (farewells_.has_ended(header.group)) return true;
  unknown_.try_emplace(header.group, Clock::now());
  return false;
}

// A group that never comes has failed here before it began, and no thread has said so. A peer that
// waits for it has sent a frame of it, and is answered.
void Lane::give_up_unknown(Clock::time_point now) {
  std::vector<std::uint32_t> late;
  for (const auto& [number, since] : unknown_) {
    if (now - since >= place_.start_patience) late.push_back(number);
  }
  for (const std::uint32_t number : late) {
    refuse_unknown(number, {ErrorCode::peer_lost, kNoRank,
                            "a rank has not joined the group that it was to be in"});
  }
}

// The group's members are not known here: peers that send a frame of it are told.
void Lane::refuse_unknown(std::uint32_t number, const Error& error) {
  Farewell farewell = farewell_of(number, error);
  for (std::uint32_t peer = 0; peer < place_.peers; ++peer) farewell.untold.insert(peer);
  farewells_.leave_to_askers(number, std::move(farewell));
  forget_unknown(number);
}

Farewell Lane::farewell_of(std::uint32_t number, const Error& error) const {
  Farewell farewell{wire::fault_message(wire::FrameKind::abort, error), IndexSet(place_.peers)};
  farewell.words.header.group = number;
  return farewell;
}

// Notes the group as ended, although it was never here.
void Lane::forget_unknown(std::uint32_t number) {
  farewells_.expect(number);
  farewells_.note_end(number);
  unknown_.erase(number);
  resume_reading();
}

Status Lane::accepts(std::uint32_t from, const wire::FrameHeader& header) {
  const PeerChannel& channel = channels_.of(from);
  Status error;
  if (LaneGroup* const group = find(header.group, channel)) {
    group->contain([&] { error = group->accepts(channel, header); });
  }
  return error;
}

std::byte* Lane::place(std::uint32_t from, const wire::FrameHeader& header) {
  const PeerChannel& channel = channels_.of(from);
  std::byte* place = nullptr;
  if (LaneGroup* const group = find(header.group, channel)) {
    group->contain([&] { place = group->place(channel, header); });
  }
  return place;
}

Status Lane::on_message(std::uint32_t from, wire::Message message) {
  if (message.header.kind == wire::FrameKind::heartbeat) return {};
  PeerChannel& channel = channels_.of(from);
  LaneGroup* const group = find(message.header.group);
  if (!group) {
    if (!wire::is_control(message.header.kind)) farewells_.answer(channel, message.header.group);
    return {};
  }
  if (!group->has(channel)) return protocol_error("frame: of a group that it is no member of");
  const bool may_be_last = message.header.kind == wire::FrameKind::goodbye;
  make_busy(*group);
  Status error;
  group->contain([&] { error = group->on_message(channel, std::move(message)); });
  if (may_be_last) channel.is_excused = may_go(channel);
  return error;
}

// Whether no group minds the end of the connection.
bool Lane::may_go(const PeerChannel& channel) const {
  return std::ranges::all_of(groups_, [&](const auto& one) {
    return !one.second->has(channel) || one.second->may_go(channel);
  });
}

// --- Peers that are silent or lost ---

// A lost peer is told, too, in case that it thaws one day.
void Lane::on_news(PeerChannel& channel, const proto::Pulse::News& news) {
  if (news.state != proto::Pulse::State::lost) {
    for (const auto& [number, group] : groups_) {
      if (group->has(channel)) group->on_silence(channel, news);
    }
    return;
  }
  const Error error{ErrorCode::peer_lost, kNoRank, describe_silence(news.silence)};
  for (const auto& [number, group] : groups_) {
    if (group->has(channel)) group->say_lost(channel, error);
  }
  (void)channel.connection.flush();
  lose(channel, error);
}

// Groups note the cause before the peer can see the connection close. Else the peer would tell all
// ranks, this one as well, that this rank is lost, and the cause would come second.
void Lane::lose(PeerChannel& channel, const Error& error) {
  if (channel.dial() == Dial::lost) return channel.connection.close();
  const bool is_told = error.code == ErrorCode::protocol && !may_go(channel);
  note_lost(channel);
  for (const auto& [number, group] : groups_) {
    if (group->has(channel)) group->on_lost(channel, error);
  }
  is_told ? channel.connection.ignore_input() : channel.connection.close();
}

void Lane::lose_untold(PeerChannel& channel) noexcept {
  if (channel.dial() == Dial::lost) return channel.connection.close();
  note_lost(channel);
  for (const auto& [number, group] : groups_) {
    if (group->has(channel)) group->on_lost_untold(channel);
  }
  channel.connection.close();
}

void Lane::note_lost(PeerChannel& channel) noexcept {
  if (channel.dial() == Dial::connected) --connections_;
  channel.move(DialStep::lose);
  is_whole_ = false;
}

void Lane::lose_all() noexcept {
  for (PeerChannel* channel : channels_.active()) lose_untold(*channel);
}

}  // namespace sparsewire::comm
