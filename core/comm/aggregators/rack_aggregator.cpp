// Hands each datagram to the job that it names.
#include "comm/aggregators/rack_aggregator.hpp"

#include <algorithm>
#include <utility>

#include "comm/progress/exceptions.hpp"

namespace sparsewire::comm {
namespace {

net::UdpOptions options_of(const std::optional<net::Disturbance>& disturbance) {
  return {.datagram_bytes = wire::kMaxDatagram,
          .most_queued = kDatagramsQueued,
          .disturbance = disturbance};
}

}  // namespace

RackAggregator::RackAggregator(const RackLimits& limits, int workers, int parent,
                               const std::optional<net::Disturbance>& disturbance)
    : limits_(limits),
      workers_(workers, options_of(disturbance)),
      parent_(parent, options_of(disturbance)),
      thread_(*this) {
  thread_.watch(workers_);
  thread_.watch(parent_);
  thread_.start();
}

void RackAggregator::add_job(std::uint64_t job, std::uint32_t world_size, const DatagramSeal& seal,
                             std::shared_ptr<const wire::WayKeys> above) {
  thread_.post([this, job, world_size, seal, above = std::move(above)] {
    if (jobs_.contains(job)) return;
    const JobSlots::Parent parent{&parent_, above,
                                  [this, job](std::size_t bytes) { return reserve(job, bytes); }};
    const auto add = [&]() -> Status {
      jobs_[job].slots = std::make_unique<JobSlots>(job, world_size, seal, parent);
      ++counts_.jobs_served;
      return {};
    };
    if (guarded(add)) forget(job);
  });
}

void RackAggregator::remove_job(std::uint64_t job) {
  thread_.post([this, job] { forget(job); });
}

void RackAggregator::forget(std::uint64_t job) {
  const auto at = jobs_.find(job);
  if (at == jobs_.end()) return;
  counts_.memory -= at->second.reserved;
  jobs_.erase(at);
}

bool RackAggregator::reserve(std::uint64_t job, std::size_t bytes) {
  const bool fits = bytes <= limits_.job_memory && bytes <= limits_.memory - counts_.memory;
  if (!fits) {
    ++counts_.jobs_refused;
    return false;
  }
  jobs_.at(job).reserved += bytes;
  counts_.memory += bytes;
  return true;
}

void RackAggregator::close() {
  thread_.post([this] { closing_ = true; });
  thread_.join();
  workers_.close();
  parent_.close();
}

void RackAggregator::progress(Clock::time_point now) {
  const proto::Microseconds time = microseconds_of(now);
  for (net::UdpSocket* const socket : {&parent_, &workers_}) {
    socket->receive(time, [&](std::span<std::byte> data, const net::Address& from) {
      take(data, from, *socket);
    });
  }
  workers_.flush(time);
  parent_.flush(time);
  // Figures that find no memory are published the next time.
  (void)guarded([this]() -> Status {
    publish_stats();
    return {};
  });
}

// If memory runs out, only the job that it hits ends: its datagrams are not taken any more.
void RackAggregator::take(std::span<std::byte> data, const net::Address& from,
                          net::UdpSocket& socket) {
  auto at = jobs_.end();
  const auto handed = [&]() -> Status {
    const auto job = wire::job_of(data);
    if (job) at = jobs_.find(*job);
    if (at == jobs_.end()) return void(++counts_.strange_datagrams), Status{};
    JobSlots& slots = *at->second.slots;
    &socket == &parent_ ? slots.on_parent(data, workers_) : slots.on_datagram(data, from, workers_);
    return {};
  };
  if (guarded(handed) && at != jobs_.end()) forget(at->first);
}

std::optional<std::chrono::milliseconds> RackAggregator::patience(Clock::time_point now) {
  std::optional<proto::Microseconds> due;
  for (const net::UdpSocket* const socket : {&workers_, &parent_}) {
    if (socket->is_readable() || socket->is_writable()) return std::chrono::milliseconds{0};
    const auto next = socket->next_due();
    if (next) due = std::min(due.value_or(*next), *next);
  }
  if (!due) return {};
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*due - microseconds_of(now));
  return std::max(wait, std::chrono::milliseconds{0});
}

// Exceptions of a job are caught for that job alone. This one is the thread's own.
void RackAggregator::on_exception(const std::exception&) noexcept {
  jobs_.clear();
  counts_.memory = 0;
}

RackStats RackAggregator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void RackAggregator::publish_stats() {
  counts_.jobs = jobs_.size();
  counts_.below = workers_.counters();
  counts_.above = parent_.counters();
  counts_.receive_buffer = std::min(workers_.receive_buffer(), parent_.receive_buffer());
  for (net::UdpSocket* const socket : {&workers_, &parent_}) {
    if (const auto error = socket->take_error()) counts_.last_error = error.value();
  }
  const std::lock_guard lock(mutex_);
  stats_ = counts_;
  for (const auto& [id, job] : jobs_) stats_.slots.emplace(id, job.slots->counters());
}

}  // namespace sparsewire::comm
