// Takes workers in, gives every job its turn, and counts.
#include "comm/aggregator.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/exceptions.hpp"

namespace sparsewire::comm {
namespace {

constexpr std::chrono::seconds kReapingInterval{1};

}  // namespace

Aggregator::Aggregator(const AggregatorLimits& limits) : budget_(limits), thread_(*this) {
  thread_.start();
}

void Aggregator::add_worker(const Identity& identity, int fd) {
  std::unique_ptr<WorkerChannel> channel;
  try {
    channel = std::make_unique<WorkerChannel>(identity, fd);
  } catch (const std::exception&) {
    ::close(fd);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    serving_.insert(identity);
  }
  // Shared, so that the socket is closed even where the thread has ended and drops the call.
  auto arrived = std::make_shared<std::unique_ptr<WorkerChannel>>(std::move(channel));
  thread_.post([this, arrived] { welcome(*arrived); });
}

// Where the system has no memory or no room in its tables, this one worker is lost.
void Aggregator::welcome(std::unique_ptr<WorkerChannel>& channel) {
  const Identity identity = channel->identity;
  const Status error = guarded([&]() -> Status {
    thread_.watch(channel->connection);
    const auto [at, is_new] = jobs_.try_emplace(identity.job, budget_);
    at->second.add(std::move(channel));
    const std::lock_guard lock(mutex_);
    stats_.jobs_served += is_new;
    return {};
  });
  if (!error) return;
  channel.reset();
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
  const bool reaps = now >= next_reaping_;
  for (auto& [id, job] : jobs_) {
    const auto served = [&]() -> Status {
      job.serve(now, reaps);
      return {};
    };
    if (guarded(served)) job.drop();
  }
  if (reaps) next_reaping_ = now + kReapingInterval;
  forget_closed();
  publish_stats();
}

std::optional<std::chrono::milliseconds> Aggregator::patience(Clock::time_point now) {
  if (jobs_.empty()) return {};
  auto next = milliseconds_of(next_reaping_);
  for (const auto& [id, job] : jobs_) {
    if (job.has_work()) return std::chrono::milliseconds{0};
    next = std::min(next, job.next_look().value_or(next));
  }
  return std::max(next - milliseconds_of(now), proto::Milliseconds{0});
}

// What a job or a worker throws is caught where it is known whose it is; this is of the thread's
// own.
void Aggregator::on_exception(const std::exception&) noexcept {
  for (auto& [id, job] : jobs_) job.drop();
}

void Aggregator::forget(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  serving_.erase(identity);
}

void Aggregator::forget_closed() {
  for (auto& [id, job] : jobs_) {
    job.forget_closed([this](const WorkerChannel& channel) {
      bytes_sent_closed_ += channel.connection.bytes_sent();
      bytes_received_closed_ += channel.connection.bytes_received();
      forget(channel.identity);
    });
  }
  std::erase_if(jobs_, [](const auto& job) { return job.second.channels().empty(); });
}

void Aggregator::publish_stats() {
  const std::lock_guard lock(mutex_);
  stats_.jobs = jobs_.size();
  stats_.workers = 0;
  stats_.bytes_sent = bytes_sent_closed_;
  stats_.bytes_received = bytes_received_closed_;
  stats_.memory = 0;
  stats_.memory_reserved = budget_.reserved();
  for (const auto& [id, job] : jobs_) {
    stats_.workers += job.channels().size();
    stats_.memory += job.memory_held();
    for (const auto& channel : job.channels()) {
      stats_.bytes_sent += channel->connection.bytes_sent();
      stats_.bytes_received += channel->connection.bytes_received();
    }
  }
}

}  // namespace sparsewire::comm
