// The aggregator of a rack: slots for many jobs at once, between the rack's workers and a parent,
// in one progress thread. It takes only the jobs' datagrams; their connections go on to the parent.
#pragma once

#include <cstdint>
#include <map>

#include "comm/aggregators/job_slots.hpp"
#include "comm/progress/progress_thread.hpp"

namespace sparsewire::comm {

struct RackLimits {
  std::size_t memory;      // bytes that all jobs together may take
  std::size_t job_memory;  // and one job
};

struct RackStats {
  std::uint64_t jobs = 0;  // now
  std::uint64_t jobs_served = 0;
  std::uint64_t jobs_refused = 0;  // how often, for want of memory
  std::uint64_t memory = 0;        // bytes, of all jobs
  net::UdpCounters below;          // to and from workers
  net::UdpCounters above;          // to and from the parent
  int last_error = 0;              // of either socket, as errno has it
  std::size_t receive_buffer = 0;  // bytes that the system grants to each
  std::uint64_t strange_datagrams = 0;
  std::map<std::uint64_t, proto::SlotAggregatorCounters> slots;  // by job
};

class RackAggregator final : private ProgressClient {
 public:
  // Takes over a bound socket for the workers' datagrams, and one that is connected to the parent.
  RackAggregator(const RackLimits& limits, int workers, int parent,
                 const std::optional<net::Disturbance>& disturbance = {});
  ~RackAggregator() override { close(); }

  // From any thread. A job that is here already stays as it is. The seal is that of the rack's
  // workers, and `above` has the keys of the parent's workers.
  void add_job(std::uint64_t job, std::uint32_t world_size, const DatagramSeal& seal,
               std::shared_ptr<const wire::WayKeys> above);
  void remove_job(std::uint64_t job);

  void close();
  RackStats stats() const;

 private:
  struct Job {
    std::size_t reserved = 0;
    std::unique_ptr<JobSlots> slots = {};
  };

  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return closing_; }
  void on_exception(const std::exception& exception) noexcept override;

  void take(std::span<std::byte> data, const net::Address& from, net::UdpSocket& socket);
  bool reserve(std::uint64_t job, std::size_t bytes);
  void forget(std::uint64_t job);
  void publish_stats();

  const RackLimits limits_;
  net::UdpSocket workers_;
  net::UdpSocket parent_;
  std::map<std::uint64_t, Job> jobs_;
  bool closing_ = false;
  RackStats counts_;

  mutable std::mutex mutex_;  // guards this one
  RackStats stats_;

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
