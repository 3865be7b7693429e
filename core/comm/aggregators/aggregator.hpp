// A dedicated aggregator: owner halves for many jobs at once, in one progress thread. It knows of a
// job only what the job's workers tell it, and forgets the job when the last of them leaves. No job
// can make it take more than was agreed at the job's start, nor stop another one.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "comm/aggregators/aggregator_job.hpp"

namespace sparsewire::comm {

struct AggregatorStats {
  std::uint64_t jobs = 0;     // being served now
  std::uint64_t workers = 0;  // connections now
  std::uint64_t jobs_served = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t memory = 0;           // bytes held for jobs now
  std::uint64_t memory_reserved = 0;  // bytes that the jobs may come to need
  net::UdpCounters datagrams;
  std::size_t receive_buffer = 0;       // bytes that the system grants to datagrams
  std::uint64_t strange_datagrams = 0;  // of no job that is here
  std::map<std::uint64_t, proto::SlotAggregatorCounters> slots;  // by job
};

class Aggregator final : private ProgressClient {
 public:
  using Identity = AggregatorJob::Identity;

  // Takes over a bound socket for datagrams, if there is one.
  explicit Aggregator(const AggregatorLimits& limits = {}, int datagrams = -1,
                      const std::optional<net::Disturbance>& disturbance = {},
                      net::Offload offload = net::Offload::where_possible);
  ~Aggregator() override { close(); }

  // Serves a connected, authenticated socket, which it takes over, whatever happens. The seal tells
  // the job's datagrams from others.
  void add_worker(const Identity& identity, int fd, const DatagramSeal& seal = {});

  // Whether the connection is still here; from any thread.
  bool serves(const Identity& identity) const;

  // Drops all jobs and ends the thread.
  void close();

  AggregatorStats stats() const;

 private:
  using WorkerChannel = AggregatorJob::WorkerChannel;

  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return closing_; }
  void on_exception(const std::exception& exception) noexcept override;

  void receive_datagrams(Clock::time_point now);
  void welcome(std::unique_ptr<WorkerChannel>& channel, const DatagramSeal& seal);
  void forget_closed();
  void forget(const Identity& identity);
  void publish_stats();

  Budget budget_;
  std::optional<net::UdpSocket> datagrams_;
  std::uint64_t strange_datagrams_ = 0;
  std::map<std::uint64_t, AggregatorJob> jobs_;
  Clock::time_point next_reaping_{};
  bool closing_ = false;
  std::uint64_t bytes_sent_closed_ = 0;
  std::uint64_t bytes_received_closed_ = 0;

  mutable std::mutex mutex_;  // guards these two
  AggregatorStats stats_;
  std::set<Identity> serving_;

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
