// Dispatches each worker's frames to its job's owner half and the answers to all of its workers.
#include "comm/aggregator.hpp"

#include <algorithm>
#include <utility>

#include "comm/exception_error.hpp"
#include "comm/sending.hpp"
#include "net/tcp/connection.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {

class Aggregator::Link final : public net::FrameHandler {
 public:
  Link(Aggregator& aggregator, const Identity& identity, int fd)
      : connection(fd), identity(identity), aggregator_(aggregator) {}

  std::byte* place(const wire::FrameHeader&) override { return nullptr; }
  Status on_message(wire::Message message) override {
    return aggregator_.on_message(*this, std::move(message));
  }

  net::Connection connection;
  const Identity identity;
  bool greeted = false;               // its hello was taken
  std::optional<proto::Pulse> pulse;  // of a greeted lane 0, which speaks for its rank
  bool departed = false;              // it said goodbye

 private:
  Aggregator& aggregator_;
};

Aggregator::Aggregator() : thread_(*this) { thread_.start(); }

Aggregator::~Aggregator() { close(); }

void Aggregator::add_worker(const Identity& identity, int fd) {
  // Shared, so that the socket is closed even where the thread has ended and drops the call.
  {
    const std::lock_guard lock(mutex_);
    serving_.insert(identity);
  }
  auto link = std::make_shared<std::unique_ptr<Link>>(std::make_unique<Link>(*this, identity, fd));
  thread_.post([this, link] {
    thread_.watch((*link)->connection);
    const auto [at, is_new] = jobs_.try_emplace((*link)->identity.job);
    Job& job = at->second;
    if (job.broken) {
      (*link)->connection.send(wire::fault_message(wire::FrameKind::abort, *job.broken));
    }
    job.links.push_back(std::move(*link));
    const std::lock_guard lock(mutex_);
    stats_.jobs_served += is_new;
  });
}

bool Aggregator::serves(const Identity& identity) const {
  const std::lock_guard lock(mutex_);
  return serving_.contains(identity);
}

void Aggregator::close() {
  thread_.post([this] { closing_ = true; });
  thread_.join();
}

AggregatorStats Aggregator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Aggregator::progress(Clock::time_point now) {
  for (auto& [id, job] : jobs_) {
    for (const auto& link : job.links) {
      if (!link->connection.is_readable()) continue;
      if (Status error = link->connection.receive(*link)) lose(*link, *error);
    }
  }
  for (auto& [id, job] : jobs_) check_pulses(job, now);
  for (auto& [id, job] : jobs_) {
    for (const auto& link : job.links) {
      if (Status error = link->connection.flush()) lose(*link, *error);
    }
  }
  for (auto& [id, job] : jobs_) pace_owners(job);
  forget_closed();
  publish_stats();
}

// As in a lane: no results while a rank of theirs is behind with reading them.
void Aggregator::pace_owners(Job& job) {
  for (auto& [lane, part] : job.lanes) {
    const bool has_to_wait = std::ranges::any_of(job.links, [lane = lane](const auto& link) {
      return link->identity.lane == lane && is_behind(link->connection);
    });
    if (has_to_wait == part.owner->is_paused()) continue;
    proto::Owner::Outbox outbox;
    part.owner->pause(has_to_wait, outbox);
    for (const wire::Message& answer : outbox) send_to_lane(job, lane, answer, nullptr);
  }
}

std::optional<std::chrono::milliseconds> Aggregator::patience(Clock::time_point now) {
  auto next = proto::Milliseconds::max();
  for (const auto& [id, job] : jobs_) {
    for (const auto& link : job.links) {
      if (link->connection.is_readable()) return std::chrono::milliseconds{0};
    }
    if (job.metronome) next = std::min(next, job.metronome->next());
  }
  if (next == proto::Milliseconds::max()) return {};
  return std::max(next - milliseconds_of(now), proto::Milliseconds{0});
}

// Workers have no connections among themselves, so those of a job hear of each other's silence
// here.
void Aggregator::check_pulses(Job& job, Clock::time_point now) {
  if (!job.metronome) return;
  const auto asleep = job.metronome->tick(milliseconds_of(now));
  if (!asleep) return;
  for (const auto& link : job.links) {
    if (!link->pulse || !link->connection.is_open()) continue;
    beat(link->connection, *link->pulse);
    link->pulse->excuse(*asleep);
    if (!link->departed) listen(job, *link, milliseconds_of(now));
  }
}

void Aggregator::listen(Job& job, Link& link, proto::Milliseconds now) {
  using State = proto::Pulse::State;
  const bool was_silent = link.pulse->state() == State::silent;
  const proto::Milliseconds silence = link.pulse->silence(now);
  const auto changed = link.pulse->listen(now, link.connection.bytes_received());
  if (!changed) return;
  const Rank rank = link.identity.rank;
  if (*changed == State::lost) return lose_silent(job, rank, silence);
  if (*changed != State::silent && !was_silent) return;
  const auto lasted = static_cast<std::uint64_t>(*changed == State::silent ? silence.count() : 0);
  send_to_lane(
      job, link.identity.lane,
      {{.kind = wire::FrameKind::silence, .seq = lasted, .chunk = static_cast<std::uint64_t>(rank)},
       {}},
      &link);
}

// The rank is told like all others, in case that it thaws one day.
void Aggregator::lose_silent(Job& job, Rank rank, proto::Milliseconds silence) {
  if (!job.broken) {
    break_job(job, {ErrorCode::peer_lost, rank,
                    "lost rank " + std::to_string(rank) + ": " + describe_silence(silence)});
  }
  for (const auto& link : job.links) {
    if (link->identity.rank != rank) continue;
    (void)link->connection.flush();
    link->connection.close();
  }
}

Status Aggregator::on_message(Link& link, wire::Message message) {
  if (jobs_.at(link.identity.job).broken) return {};
  if (message.header.kind == wire::FrameKind::heartbeat) return {};
  if (message.header.kind == wire::FrameKind::hello) return on_hello(link, message);
  // A rank that failed early may have had no time for a hello.
  const bool may_come_first = message.header.kind == wire::FrameKind::abort;
  if (!link.greeted && !may_come_first) return protocol_error("frame: a hello must come first");
  switch (message.header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
    case wire::FrameKind::refuse:
      message.payload = message.payload.owned();
      return on_owner_message(link, std::move(message));
    case wire::FrameKind::goodbye:
      return on_goodbye(link, message);
    case wire::FrameKind::abort: {
      const auto fault = wire::decode_fault(message.payload.view());
      if (!fault) return fault.error();
      break_job(jobs_.at(link.identity.job), fault->error);
      return {};
    }
    default:
      return protocol_error("frame: an aggregator does not take this kind");
  }
}

// The first worker of a lane says what is to be served; the others must say the same.
Status Aggregator::on_hello(Link& link, const wire::Message& message) {
  const auto hello = wire::decode_hello(message.payload.view());
  if (!hello) return hello.error();
  const bool fits = hello->topology.world_size == link.identity.world_size &&
                    hello->lane == link.identity.lane && !link.greeted;
  if (!fits) return protocol_error("hello: it does not fit what the handshake proved");

  Job& job = jobs_.at(link.identity.job);
  const auto [at, is_new] = job.lanes.try_emplace(hello->lane);
  LanePart& part = at->second;
  if (is_new) {
    part = {hello->topology, hello->owner,
            std::make_unique<proto::Owner>(hello->topology, hello->lane, hello->owner)};
  } else if (part.topology != hello->topology || part.owner_index != hello->owner) {
    return protocol_error("hello: the ranks disagree on the topology");
  }
  link.greeted = true;
  const proto::Milliseconds patience = patience_of(hello->topology);
  link.connection.expect_answers_within(patience);
  if (!job.metronome) job.metronome.emplace(patience);
  if (hello->lane == 0) link.pulse.emplace(patience);
  return {};
}

Status Aggregator::on_owner_message(Link& link, wire::Message message) {
  Job& job = jobs_.at(link.identity.job);
  proto::Owner::Outbox outbox;
  proto::Owner& owner = *job.lanes.at(link.identity.lane).owner;
  if (Status error = owner.on_message(link.identity.rank, std::move(message), outbox)) {
    return error;
  }
  for (const wire::Message& answer : outbox) {
    send_to_lane(job, link.identity.lane, answer, nullptr);
  }
  return {};
}

// The workers of a job have no connections among themselves, so the goodbye is passed on.
Status Aggregator::on_goodbye(Link& link, const wire::Message& message) {
  if (message.header.chunk != static_cast<std::uint64_t>(link.identity.rank)) {
    return protocol_error("goodbye: of another rank");
  }
  link.departed = true;
  send_to_lane(jobs_.at(link.identity.job), link.identity.lane, message, &link);
  return {};
}

void Aggregator::send_to_lane(Job& job, std::uint32_t lane, const wire::Message& message,
                              const Link* except) {
  for (const auto& link : job.links) {
    if (link.get() != except && link->identity.lane == lane) link->connection.send(message);
  }
}

void Aggregator::lose(Link& link, const Error& error) {
  if (error.code == ErrorCode::protocol) {
    link.connection.send(wire::fault_message(wire::FrameKind::abort, error));
    link.connection.flush();
  }
  link.connection.close();
  Job& job = jobs_.at(link.identity.job);
  if (job.broken || link.departed) return;
  break_job(job, {error.code, link.identity.rank,
                  "lost rank " + std::to_string(link.identity.rank) + ": " + error.message});
}

void Aggregator::break_job(Job& job, const Error& error) {
  job.broken = error;
  job.lanes.clear();
  for (const auto& link : job.links) {
    link->connection.drop_unsent();
    link->connection.send(wire::fault_message(wire::FrameKind::abort, error));
  }
}

// Which job's message it was is not known here, so all of them end. Without memory to tell the
// workers why, the ends of their connections tell them.
void Aggregator::on_exception(const std::exception& exception) noexcept {
  const Error error = error_of(exception, kNoRank);
  for (auto& [id, job] : jobs_) {
    try {
      if (!job.broken) {
        break_job(job, error);
        continue;
      }
    } catch (const std::exception&) {
      job.lanes.clear();
    }
    for (const auto& link : job.links) link->connection.close();
  }
}

void Aggregator::forget_closed() {
  const auto forget = [this](const std::unique_ptr<Link>& link) {
    if (link->connection.is_open()) return false;
    bytes_sent_closed_ += link->connection.bytes_sent();
    bytes_received_closed_ += link->connection.bytes_received();
    const std::lock_guard lock(mutex_);
    serving_.erase(link->identity);
    return true;
  };
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    at->second.links.remove_if(forget);
    at = at->second.links.empty() ? jobs_.erase(at) : std::next(at);
  }
}

void Aggregator::publish_stats() {
  const std::lock_guard lock(mutex_);
  stats_.jobs = jobs_.size();
  stats_.workers = 0;
  stats_.bytes_sent = bytes_sent_closed_;
  stats_.bytes_received = bytes_received_closed_;
  for (const auto& [id, job] : jobs_) {
    stats_.workers += job.links.size();
    for (const auto& link : job.links) {
      stats_.bytes_sent += link->connection.bytes_sent();
      stats_.bytes_received += link->connection.bytes_received();
    }
  }
}

}  // namespace sparsewire::comm
