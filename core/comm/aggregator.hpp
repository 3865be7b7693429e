// A dedicated aggregator: owner halves for many jobs at once, in one progress thread. It knows
// nothing of a job but what the job's workers tell it, and forgets it when the last of them leaves.
// No job can make it take more than was agreed at the job's start, nor stop another one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "comm/heartbeat.hpp"
#include "wire/topology.hpp"

namespace sparsewire::comm {

struct AggregatorLimits {
  std::size_t memory = std::size_t{2} << 30;      // bytes that all jobs together may need
  std::size_t job_memory = std::size_t{1} << 30;  // and one job
  std::uint32_t window = 1u << 20;                // bytes that a worker may have in flight
  // How long a link may stay without a hello. Ranks have up to 300 s to find each other, and say
  // nothing before they have.
  std::chrono::milliseconds grace{330'000};
};

struct AggregatorStats {
  std::uint64_t jobs = 0;     // being served now
  std::uint64_t workers = 0;  // connections now
  std::uint64_t jobs_served = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t memory = 0;           // bytes held for jobs now
  std::uint64_t memory_reserved = 0;  // bytes that the jobs may come to need
};

class Aggregator final : private ProgressClient {
 public:
  // What the handshake has proved about a connection.
  struct Identity {
    std::uint64_t job;
    std::uint32_t world_size;
    Rank rank;
    std::uint32_t lane;

    auto operator<=>(const Identity&) const = default;
  };

  explicit Aggregator(const AggregatorLimits& limits = {});
  ~Aggregator() override;

  // Serves a connected, authenticated socket, which it takes over, whatever happens.
  void add_worker(const Identity& identity, int fd);

  // Whether the connection is still here; from any thread.
  bool serves(const Identity& identity) const;

  // Drops all jobs and ends the thread.
  void close();

  AggregatorStats stats() const;

 private:
  class Link;
  struct LanePart;
  struct Job;

  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return closing_; }
  void on_exception(const std::exception& exception) noexcept override;

  void welcome(std::unique_ptr<Link>& link);
  void serve(Job& job, Clock::time_point now);
  void flush(Job& job);
  Status accepts(const Link& link, const wire::FrameHeader& header) const;
  Status on_message(Link& link, wire::Message message);
  Status on_hello(Link& link, const wire::Message& message);
  Status begin_lane(Job& job, const wire::Hello& hello);
  Status reserve(Job& job, const wire::Topology& topology);
  Status on_goodbye(Link& link, const wire::Message& message);
  Status on_owner_message(Link& link, wire::Message message);
  void check_pulses(Job& job, Clock::time_point now);
  void listen(Job& job, Link& link, proto::Milliseconds now);
  static void send_to_lane(Job& job, std::uint32_t lane, const wire::Message& message,
                           const Link* except);
  static void pace_owners(Job& job);

  void lose(Job& job, Link& link, const Error& error);
  void lose_silent(Job& job, Rank rank, proto::Milliseconds silence);
  void break_job(Job& job, const Error& error);
  void drop_job(Job& job) noexcept;
  void reap(Job& job, Clock::time_point now);
  void forget(const Identity& identity);
  void forget_closed();
  void publish_stats();

  const AggregatorLimits limits_;
  std::map<std::uint64_t, Job> jobs_;
  std::size_t reserved_ = 0;  // bytes, by all jobs
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
