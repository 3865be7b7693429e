// Takes workers in, gives every job its turn, and counts.
#include "comm/aggregators/aggregator.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/progress/exceptions.hpp"

namespace sparsewire::comm {
namespace {

constexpr std::chrono::seconds kReapingInterval{1};

// The largest value of SPARSEWIRE_DATAGRAM.
constexpr std::size_t kLargestDatagram = 8972;

}  // namespace

Aggregator::Aggregator(const AggregatorLimits& limits, int datagrams,
                       const std::optional<net::Disturbance>& disturbance, net::Offload offload)
    : budget_(limits), thread_(*this) {
  if (datagrams >= 0) {
    datagrams_.emplace(datagrams, net::UdpOptions{.datagram_bytes = kLargestDatagram,
                                                  .most_queued = kDatagramsQueued,
                                                  .sending = offload,
                                                  .receiving = offload,
                                                  .disturbance = disturbance});
    thread_.watch(*datagrams_);
  }
  publish_stats();
  thread_.start();
}

void Aggregator::add_worker(const Identity& identity, int fd, const DatagramSeal& seal) {
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
  // Shared, so that the socket is closed even if the thread has ended and drops the call.
  auto arrived = std::make_shared<std::unique_ptr<WorkerChannel>>(std::move(channel));
  thread_.post([this, arrived, seal] { welcome(*arrived, seal); });
}

// If the system has no memory or no room in its tables, only this worker is lost.
void Aggregator::welcome(std::unique_ptr<WorkerChannel>& channel, const DatagramSeal& seal) {
  const Identity identity = channel->identity;
  const Status error = guarded([&]() -> Status {
    thread_.watch(channel->connection);
    const auto [at, is_new] = jobs_.try_emplace(identity.job, budget_);
    at->second.add(std::move(channel));
    if (datagrams_ && seal.keys) at->second.open_slots(identity.job, identity.world_size, seal);
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
  if (datagrams_) datagrams_->close();
}

AggregatorStats Aggregator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Aggregator::progress(Clock::time_point now) {
  if (datagrams_) receive_datagrams(now);
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
  // Figures that find no memory are published the next time.
  (void)guarded([this]() -> Status {
    publish_stats();
    return {};
  });
}

// A turn is bounded, so garbage cannot keep connections waiting. If memory runs out, only the job
// that it hits ends.
void Aggregator::receive_datagrams(Clock::time_point now) {
  const auto take = [this](std::span<std::byte> data, const net::Address& from) {
    auto at = jobs_.end();
    const auto handed = [&]() -> Status {
      const auto job = wire::job_of(data);
      if (job) at = jobs_.find(*job);
      at == jobs_.end() ? void(++strange_datagrams_)
                        : at->second.on_datagram(data, from, *datagrams_);
      return {};
    };
    if (guarded(handed) && at != jobs_.end()) at->second.drop();
  };
  const proto::Microseconds time = microseconds_of(now);
  datagrams_->receive(time, take);
  datagrams_->flush(time);
}

std::optional<std::chrono::milliseconds> Aggregator::patience(Clock::time_point now) {
  if (datagrams_ && (datagrams_->is_readable() || datagrams_->is_writable())) {
    return std::chrono::milliseconds{0};
  }
  if (jobs_.empty()) return {};
  auto next = milliseconds_of(next_reaping_);
  for (const auto& [id, job] : jobs_) {
    if (job.has_work()) return std::chrono::milliseconds{0};
    next = std::min(next, job.next_look().value_or(next));
  }
  if (const auto due = datagrams_ ? datagrams_->next_due() : std::nullopt) {
    next = std::min(next, std::chrono::ceil<proto::Milliseconds>(*due));
  }
  return std::max(next - milliseconds_of(now), proto::Milliseconds{0});
}

// Exceptions of a job or a worker are caught for that one alone. This one is the thread's own.
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
  if (datagrams_) {
    stats_.datagrams = datagrams_->counters();
    stats_.receive_buffer = datagrams_->receive_buffer();
  }
  stats_.strange_datagrams = strange_datagrams_;
  stats_.slots.clear();
  for (const auto& [id, job] : jobs_) {
    stats_.workers += job.channels().size();
    stats_.memory += job.memory_held();
    if (job.slots()) stats_.slots.emplace(id, job.slots()->counters());
    for (const auto& channel : job.channels()) {
      stats_.bytes_sent += channel->connection.bytes_sent();
      stats_.bytes_received += channel->connection.bytes_received();
    }
  }
}

}  // namespace sparsewire::comm
