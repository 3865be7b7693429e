// How links and jobs come to an end: lost, broken, silent, or with nobody to vouch for them.
#include <algorithm>

#include "comm/aggregator_job.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {
namespace {

// How long the workers of a broken job have to read why, and to close.
constexpr std::chrono::seconds kLastWords{10};

}  // namespace

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

void Aggregator::lose(Job& job, Link& link, const Error& error) {
  if (error.code == ErrorCode::resources) return break_job(job, error);
  if (error.code == ErrorCode::protocol) {
    link.connection.send(wire::fault_message(wire::FrameKind::abort, error));
    (void)link.connection.flush();
  }
  link.connection.close();
  if (job.broken || link.departed) return;
  break_job(job, {error.code, link.identity.rank,
                  "lost rank " + std::to_string(link.identity.rank) + ": " + error.message});
}

void Aggregator::break_job(Job& job, const Error& error) {
  if (job.broken) return;
  job.broken = error;
  job.lanes.clear();
  for (const auto& link : job.links) {
    link->connection.drop_unsent();
    link->connection.send(wire::fault_message(wire::FrameKind::abort, error));
  }
}

// Where there is no memory even to say so, the ends of the connections say it.
void Aggregator::drop_job(Job& job) noexcept {
  job.broken = Error{ErrorCode::resources, kNoRank, "out of memory"};  // Too short to need any.
  job.lanes.clear();
  for (const auto& link : job.links) link->connection.close();
}

// What a job or a worker throws is caught where it is known whose it is; this is of the thread's
// own.
void Aggregator::on_exception(const std::exception&) noexcept {
  for (auto& [id, job] : jobs_) drop_job(job);
}

// Links that say nothing hold descriptors, and perhaps a job's memory: ones without a hello, ones
// whose rank has no pulse, and those of broken jobs. A rank that computes for an hour has a pulse.
void Aggregator::reap(Job& job, Clock::time_point now) {
  const auto grace = job.broken ? std::min<Clock::duration>(kLastWords, limits_.grace)
                                : Clock::duration{limits_.grace};
  for (const auto& link : job.links) {
    if (!job.broken && link->greeted && job.has_pulse(link->identity.rank)) link->vouched = now;
    if (now - link->vouched < grace || !link->connection.is_open()) continue;
    lose(job, *link, {ErrorCode::peer_lost, kNoRank, "it has said nothing since it connected"});
  }
}

void Aggregator::forget(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  serving_.erase(identity);
}

void Aggregator::forget_closed() {
  const auto is_over = [this](const std::unique_ptr<Link>& link) {
    if (link->connection.is_open()) return false;
    bytes_sent_closed_ += link->connection.bytes_sent();
    bytes_received_closed_ += link->connection.bytes_received();
    forget(link->identity);
    return true;
  };
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = at->second;
    job.links.remove_if(is_over);
    const bool is_empty = job.links.empty();
    if (is_empty || job.broken) reserved_ -= std::exchange(job.reserved, 0);
    at = is_empty ? jobs_.erase(at) : std::next(at);
  }
}

void Aggregator::publish_stats() {
  const std::lock_guard lock(mutex_);
  stats_.jobs = jobs_.size();
  stats_.workers = 0;
  stats_.bytes_sent = bytes_sent_closed_;
  stats_.bytes_received = bytes_received_closed_;
  stats_.memory = 0;
  stats_.memory_reserved = reserved_;
  for (const auto& [id, job] : jobs_) {
    stats_.workers += job.links.size();
    stats_.memory += job.held;
    for (const auto& link : job.links) {
      stats_.bytes_sent += link->connection.bytes_sent();
      stats_.bytes_received += link->connection.bytes_received();
    }
  }
}

}  // namespace sparsewire::comm
