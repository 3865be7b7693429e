// Gives each worker's frames to its lane's owner half, and the answers to all workers of the lane.
#include "comm/aggregators/aggregator_job.hpp"

#include <algorithm>
#include <utility>

#include "comm/progress/exceptions.hpp"

namespace sparsewire::comm {
namespace {

// Memory of a channel, beside what its rank has in flight: for the frame that is being received.
constexpr std::size_t kMemoryPerChannel = 128 * 1024 + wire::kMaxPayload;

std::string megabytes(std::size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MiB"; }

Error refused(const std::string& text) {
  return {ErrorCode::resources, kNoRank, "an aggregator refuses the job: " + text};
}

// How long the workers of a broken job have to read why, and to close.
constexpr std::chrono::seconds kLastWords{10};

Error is_not_taken() { return protocol_error("frame: an aggregator does not take this kind"); }
Error is_no_hello() { return protocol_error("frame: a hello must come first"); }

bool is_for_owner(wire::FrameKind kind) {
  using wire::FrameKind;
  return kind == FrameKind::open || kind == FrameKind::segment || kind == FrameKind::cancel ||
         kind == FrameKind::refuse;
}

}  // namespace

Status Budget::reserve(const wire::Topology& topology, std::size_t for_slots,
                       std::size_t& reserved) {
  if (topology.window_bytes > limits_.window) {
    return refused("windows of " + std::to_string(topology.window_bytes) +
                   " bytes, and it allows " + std::to_string(limits_.window) +
                   ": set SPARSEWIRE_WINDOW lower, or start it with a larger --max-window");
  }
  const std::size_t need =
      proto::Owner::memory_needed(topology) + for_slots + topology.world_size * kMemoryPerChannel;
  if (reserved + need > limits_.job_memory) {
    return refused("it may need " + megabytes(reserved + need) + ", and a job may have " +
                   megabytes(limits_.job_memory - 1) +
                   ": start it with a larger --job-memory, or set SPARSEWIRE_WINDOW or "
                   "SPARSEWIRE_LANES lower");
  }
  if (reserved_ + need > limits_.memory) {
    return refused("it may need " + megabytes(reserved + need) + ", and other jobs leave " +
                   megabytes(limits_.memory - reserved_) +
                   ": start it with a larger --memory, or add an aggregator");
  }
  reserved += need;
  reserved_ += need;
  return {};
}

void Budget::give_back(std::size_t& reserved) { reserved_ -= std::exchange(reserved, 0); }

void AggregatorJob::add(std::unique_ptr<WorkerChannel> channel) {
  channel->job = this;
  if (broken_) channel->connection.send(wire::fault_message(wire::FrameKind::abort, *broken_));
  channels_.push_back(std::move(channel));
}

// An exception, which is of memory or the system's limits, ends the job that it hits and no other.
void AggregatorJob::serve(Clock::time_point now, bool reaps) {
  receive();
  if (metronome_) {
    check_pulses(
        *metronome_, now, channels_,
        [this](const WorkerChannel& channel, const auto& news) { on_news(channel, news); });
  }
  if (reaps) reap(now);
  check_memory();
  flush();
  pace_owners();
  flush();
}

void AggregatorJob::receive() {
  for (const auto& channel : channels_) {
    if (!channel->connection.is_readable()) continue;
    const auto take = [&] { return channel->connection.receive(*channel); };
    if (Status error = guarded(take)) lose(*channel, *error);
  }
}

void AggregatorJob::flush() {
  for (const auto& channel : channels_) {
    const auto send = [&] { return comm::flush(channel->connection, *channel); };
    if (Status error = guarded(send)) lose(*channel, *error);
  }
}

// As in a lane: owners make no results while a rank is behind with reading them.
void AggregatorJob::pace_owners() {
  for (auto& [number, lane] : lanes_) {
    proto::Owner::Outbox outbox;
    lane.owner.pause(is_behind(number), outbox);
    send_results(number, outbox);
  }
}

void AggregatorJob::check_memory() {
  held_ = memory();
  if (broken_ || held_ <= reserved_ || reserved_ == 0) return;
  break_off(
      {ErrorCode::resources, kNoRank,
       "an aggregator: the job takes more memory than its windows allow, " + megabytes(held_)});
}

bool AggregatorJob::has_work() const {
  return std::ranges::any_of(
             channels_, [](const auto& channel) { return channel->connection.is_readable(); }) ||
         std::ranges::any_of(lanes_, [this](const auto& lane) {
           return lane.second.owner.is_paused() && !is_behind(lane.first);
         });
}

std::optional<proto::Milliseconds> AggregatorJob::next_look() const {
  return metronome_ ? std::optional(metronome_->next()) : std::nullopt;
}

// Results are shared by all channels of a lane, so the longest queue stands for all.
std::size_t AggregatorJob::memory() const {
  std::size_t total = slots_ ? slots_->memory() : 0;
  for (const auto& [number, lane] : lanes_) total += lane.owner.memory() + queued(number);
  for (const auto& channel : channels_) total += channel->connection.incoming_bytes();
  return total;
}

std::size_t AggregatorJob::queued(std::uint32_t lane) const {
  std::size_t longest = 0;
  for (const auto& channel : channels_) {
    if (channel->identity.lane != lane) continue;
    longest = std::max(longest, channel->connection.queued_bytes());
  }
  return longest;
}

// --- Datagrams ---

void AggregatorJob::open_slots(std::uint64_t job, std::uint32_t workers, const DatagramSeal& seal) {
  if (!slots_ && !broken_) slots_.emplace(job, workers, seal);
}

void AggregatorJob::on_datagram(std::span<std::byte> data, const net::Address& from,
                                net::UdpSocket& socket) {
  if (slots_) slots_->on_datagram(data, from, socket);
}

// --- Frames ---

Status AggregatorJob::accepts(const WorkerChannel& channel, const wire::FrameHeader& header) const {
  if (broken_) return {};
  if (is_for_owner(header.kind)) {
    if (!channel.greeted) return is_no_hello();
    return lanes_.at(channel.identity.lane).owner.accepts(channel.identity.rank, header);
  }
  const bool is_silence = header.kind == wire::FrameKind::silence;
  const bool is_hello = header.kind == wire::FrameKind::hello;
  return is_hello || (wire::is_control(header.kind) && !is_silence) ? Status{} : is_not_taken();
}

Status AggregatorJob::on_message(WorkerChannel& channel, wire::Message message) {
  const wire::FrameKind kind = message.header.kind;
  if (broken_ || kind == wire::FrameKind::heartbeat) return {};
  if (kind == wire::FrameKind::hello) return on_hello(channel, message);
  if (kind == wire::FrameKind::abort) {  // A rank that failed early may have sent no hello.
    return wire::take_fault(message, [this](const Error& error) { break_off(error); });
  }
  if (!channel.greeted) return is_no_hello();
  if (kind == wire::FrameKind::goodbye) return on_goodbye(channel, message);
  if (!is_for_owner(kind)) return is_not_taken();
  message.payload = message.payload.owned();
  proto::Owner::Outbox outbox;
  proto::Owner& owner = lanes_.at(channel.identity.lane).owner;
  if (Status error = owner.on_message(channel.rank, std::move(message), outbox)) return error;
  send_results(channel.identity.lane, outbox);
  return {};
}

// The first worker of a lane says what is to be served; the others must say the same.
Status AggregatorJob::on_hello(WorkerChannel& channel, const wire::Message& message) {
  const auto hello = wire::decode_hello(message.payload.view());
  if (!hello) return hello.error();
  const bool fits = hello->topology.world_size == channel.identity.world_size &&
                    hello->lane == channel.identity.lane && !channel.greeted;
  if (!fits) return protocol_error("hello: it does not fit what the handshake proved");
  const auto at = lanes_.find(hello->lane);
  if (at == lanes_.end()) {
    if (Status error = begin_lane(*hello)) return error;
  } else if (at->second.topology != hello->topology || at->second.owner_index != hello->owner) {
    return protocol_error("hello: the ranks disagree on the topology");
  }
  channel.greeted = true;
  const proto::Milliseconds patience = patience_of(hello->topology);
  channel.connection.expect_answers_within(patience);
  if (hello->topology.datagram_bytes != 0) channel.connection.expect_losses();
  if (!metronome_) metronome_.emplace(patience);
  if (hello->lane == 0) channel.pulse.emplace(patience);  // It speaks for its rank.
  return {};
}

Status AggregatorJob::begin_lane(const wire::Hello& hello) {
  const bool has_slots = slots_ && hello.lane == 0 && hello.topology.datagram_bytes != 0;
  const std::size_t for_slots = has_slots ? slots_->memory_needed(hello.topology) : 0;
  if (Status error = budget_.reserve(hello.topology, for_slots, reserved_)) return error;
  if (has_slots) slots_->begin(hello.topology);
  lanes_.emplace(
      hello.lane,
      Lane{hello.topology,
           hello.owner,
           {hello.topology, hello.lane, hello.owner, {.reach = proto::kDedicatedReach}}});
  return {};
}

// The workers of a job have no connections among themselves, so the goodbye is passed on.
Status AggregatorJob::on_goodbye(WorkerChannel& channel, const wire::Message& message) {
  if (message.header.chunk != static_cast<std::uint64_t>(channel.rank)) {
    return protocol_error("goodbye: of another rank");
  }
  channel.is_excused = true;
  send_to_lane(channel.identity.lane, message, &channel);
  return {};
}

void AggregatorJob::send_results(std::uint32_t lane, const proto::Owner::Outbox& outbox) {
  for (const wire::Message& message : outbox) send_to_lane(lane, message, nullptr);
}

void AggregatorJob::send_to_lane(std::uint32_t lane, const wire::Message& message,
                                 const WorkerChannel* except) {
  for (const auto& channel : channels_) {
    if (channel.get() != except && channel->identity.lane == lane) {
      channel->connection.send(message);
    }
  }
}

// --- How it ends ---

// Workers have no connections among themselves, so those of a job hear of each other's silence
// here. A lost worker is told like all others, in case that it thaws one day.
void AggregatorJob::on_news(const WorkerChannel& channel, const proto::Pulse::News& news) {
  using State = proto::Pulse::State;
  if (news.state != State::lost) {
    const auto lasted = news.state == State::silent ? news.silence.count() : 0;
    return send_to_lane(channel.identity.lane,
                        {{.kind = wire::FrameKind::silence,
                          .seq = static_cast<std::uint64_t>(lasted),
                          .chunk = static_cast<std::uint64_t>(channel.rank)},
                         {}},
                        &channel);
  }
  break_off({ErrorCode::peer_lost, channel.rank,
             "lost " + channel.name() + ": " + describe_silence(news.silence)});
  for (const auto& other : channels_) {
    if (other->rank != channel.rank) continue;
    (void)other->connection.flush();
    other->connection.close();
  }
}

void AggregatorJob::lose(WorkerChannel& channel, const Error& error) {
  if (error.code == ErrorCode::resources) return break_off(error);
  const bool is_told = error.code == ErrorCode::protocol && !channel.is_excused;
  is_told ? channel.connection.ignore_input() : channel.connection.close();
  if (channel.is_excused) return;
  break_off({error.code, channel.rank, "lost " + channel.name() + ": " + error.message});
}

void AggregatorJob::break_off(const Error& error) {
  if (broken_) return;
  broken_ = error;
  lanes_.clear();
  slots_.reset();
  for (const auto& channel : channels_) {
    channel->vouched = Clock::now();  // They have time to read it.
    channel->connection.drop_unsent();
    channel->connection.send(wire::fault_message(wire::FrameKind::abort, error));
  }
}

void AggregatorJob::drop() noexcept {
  broken_ = Error{ErrorCode::resources, kNoRank, "out of memory"};  // Too short to need any.
  lanes_.clear();
  slots_.reset();
  for (const auto& channel : channels_) channel->connection.close();
}

// Closes channels that say nothing, as they hold descriptors and perhaps a job's memory: those
// without a hello, those of ranks without a pulse, and those of broken jobs. A rank that computes
// for an hour has a pulse.
void AggregatorJob::reap(Clock::time_point now) {
  const Clock::duration grace = budget_.limits().grace;
  const Clock::duration patience = broken_ ? std::min<Clock::duration>(kLastWords, grace) : grace;
  for (const auto& channel : channels_) {
    if (!broken_ && channel->greeted && has_pulse(channel->rank)) channel->vouched = now;
    if (now - channel->vouched < patience || !channel->connection.is_open()) continue;
    lose(*channel, {ErrorCode::peer_lost, kNoRank, "it has said nothing since it connected"});
  }
}

bool AggregatorJob::has_pulse(Rank rank) const {
  return std::ranges::any_of(
      channels_, [rank](const auto& channel) { return channel->rank == rank && channel->pulse; });
}

}  // namespace sparsewire::comm
