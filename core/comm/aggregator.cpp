// Dispatches each worker's frames to its job's owner half and the answers to all of its workers.
#include "comm/aggregator.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/aggregator_job.hpp"
#include "comm/guarded.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {
namespace {

constexpr std::chrono::seconds kReapingInterval{1};

// Of a link, beside what its rank has in flight: what is being received.
constexpr std::size_t kMemoryPerLink = 128 * 1024 + wire::kMaxPayload;

std::string megabytes(std::size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MiB"; }

}  // namespace

Aggregator::Aggregator(const AggregatorLimits& limits) : limits_(limits), thread_(*this) {
  thread_.start();
}

Aggregator::~Aggregator() { close(); }

void Aggregator::add_worker(const Identity& identity, int fd) {
  std::unique_ptr<Link> link;
  try {
    link = std::make_unique<Link>(*this, identity, fd);
  } catch (const std::exception&) {
    ::close(fd);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    serving_.insert(identity);
  }
  // Shared, so that the socket is closed even where the thread has ended and drops the call.
  auto arrived = std::make_shared<std::unique_ptr<Link>>(std::move(link));
  thread_.post([this, arrived] { welcome(*arrived); });
}

// Where the system has no memory or no room in its tables, this one worker is lost.
void Aggregator::welcome(std::unique_ptr<Link>& link) {
  const Identity identity = link->identity;
  const Status error = guarded([&]() -> Status {
    thread_.watch(link->connection);
    const auto [at, is_new] = jobs_.try_emplace(identity.job);
    Job& job = at->second;
    if (job.broken) {
      link->connection.send(wire::fault_message(wire::FrameKind::abort, *job.broken));
    }
    job.links.push_back(std::move(link));
    const std::lock_guard lock(mutex_);
    stats_.jobs_served += is_new;
    return {};
  });
  if (!error) return;
  link.reset();
  forget(identity);
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
    const auto served = [&]() -> Status {
      serve(job, now);
      return {};
    };
    if (guarded(served)) drop_job(job);
  }
  if (now >= next_reaping_) next_reaping_ = now + kReapingInterval;
  forget_closed();
  publish_stats();
}

// An exception, which is of memory or the system's limits, ends the job that it hits and no other.
void Aggregator::serve(Job& job, Clock::time_point now) {
  for (const auto& link : job.links) {
    if (!link->connection.is_readable()) continue;
    const auto receive = [&] { return link->connection.receive(*link); };
    if (Status error = guarded(receive)) lose(job, *link, *error);
  }
  check_pulses(job, now);
  if (now >= next_reaping_) reap(job, now);
  job.held = job.memory();
  if (!job.broken && job.held > job.reserved && job.reserved != 0) {
    break_job(job, {ErrorCode::resources, kNoRank,
                    "an aggregator: the job takes more memory than its windows allow, " +
                        megabytes(job.held)});
  }
  flush(job);
  pace_owners(job);
  flush(job);
}

void Aggregator::flush(Job& job) {
  for (const auto& link : job.links) {
    if (Status error = link->connection.flush()) lose(job, *link, *error);
  }
}

// As in a lane: no results while a rank of theirs is behind with reading them.
void Aggregator::pace_owners(Job& job) {
  for (auto& [lane, part] : job.lanes) {
    const bool has_to_wait = job.is_behind(lane);
    if (has_to_wait == part.owner->is_paused()) continue;
    proto::Owner::Outbox outbox;
    part.owner->pause(has_to_wait, outbox);
    for (const wire::Message& answer : outbox) send_to_lane(job, lane, answer, nullptr);
  }
}

std::optional<std::chrono::milliseconds> Aggregator::patience(Clock::time_point now) {
  if (jobs_.empty()) return {};
  auto next = milliseconds_of(next_reaping_);
  for (const auto& [id, job] : jobs_) {
    if (job.has_work()) return std::chrono::milliseconds{0};
    if (job.metronome) next = std::min(next, job.metronome->next());
  }
  return std::max(next - milliseconds_of(now), proto::Milliseconds{0});
}

Status Aggregator::accepts(const Link& link, const wire::FrameHeader& header) const {
  const Job& job = jobs_.at(link.identity.job);
  if (job.broken) return {};
  switch (header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
    case wire::FrameKind::refuse:
      if (!link.greeted) return protocol_error("frame: a hello must come first");
      return job.lanes.at(link.identity.lane).owner->accepts(link.identity.rank, header);
    case wire::FrameKind::hello:
    case wire::FrameKind::goodbye:
    case wire::FrameKind::abort:
    case wire::FrameKind::heartbeat:
      return {};
    default:
      return protocol_error("frame: an aggregator does not take this kind");
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
  const auto at = job.lanes.find(hello->lane);
  if (at == job.lanes.end()) {
    if (Status error = begin_lane(job, *hello)) return error;
  } else if (at->second.topology != hello->topology || at->second.owner_index != hello->owner) {
    return protocol_error("hello: the ranks disagree on the topology");
  }
  link.greeted = true;
  const proto::Milliseconds patience = patience_of(hello->topology);
  link.connection.expect_answers_within(patience);
  if (!job.metronome) job.metronome.emplace(patience);
  if (hello->lane == 0) link.pulse.emplace(patience);
  return {};
}

Status Aggregator::begin_lane(Job& job, const wire::Hello& hello) {
  if (Status error = reserve(job, hello.topology)) return error;
  auto owner = std::make_unique<proto::Owner>(hello.topology, hello.lane, hello.owner,
                                              proto::kDedicatedReach);
  job.lanes.emplace(hello.lane, LanePart{hello.topology, hello.owner, std::move(owner)});
  return {};
}

// What the job may come to need is set aside before it begins, so that no job can take what another
// one was promised.
Status Aggregator::reserve(Job& job, const wire::Topology& topology) {
  const auto refused = [](const std::string& text) {
    return Error{ErrorCode::resources, kNoRank, "an aggregator refuses the job: " + text};
  };
  if (topology.window_bytes > limits_.window) {
    return refused("windows of " + std::to_string(topology.window_bytes) +
                   " bytes, and it allows " + std::to_string(limits_.window) +
                   ": set SPARSEWIRE_WINDOW lower, or start it with a larger --max-window");
  }
  const std::size_t need =
      proto::Owner::memory_needed(topology) + topology.world_size * kMemoryPerLink;
  if (job.reserved + need > limits_.job_memory) {
    return refused("it may need " + megabytes(job.reserved + need) + ", and a job may have " +
                   megabytes(limits_.job_memory - 1) +
                   ": start it with a larger --job-memory, or set SPARSEWIRE_WINDOW or "
                   "SPARSEWIRE_LANES lower");
  }
  if (reserved_ + need > limits_.memory) {
    return refused("it may need " + megabytes(job.reserved + need) + ", and other jobs leave " +
                   megabytes(limits_.memory - reserved_) +
                   ": start it with a larger --memory, or add an aggregator");
  }
  job.reserved += need;
  reserved_ += need;
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

}  // namespace sparsewire::comm
