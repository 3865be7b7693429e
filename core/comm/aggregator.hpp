// A dedicated aggregator: owner halves for many jobs at once, in one progress thread. It knows
// nothing of a job but what the job's workers tell it, and forgets it when the last of them leaves.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "comm/heartbeat.hpp"
#include "proto/stream/owner.hpp"

namespace sparsewire::comm {

struct AggregatorStats {
  std::uint64_t jobs = 0;     // being served now
  std::uint64_t workers = 0;  // connections now
  std::uint64_t jobs_served = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
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

  Aggregator();
  ~Aggregator() override;

  // Serves a connected, authenticated socket, which it takes over.
  void add_worker(const Identity& identity, int fd);

  // Whether the connection is still here; from any thread.
  bool serves(const Identity& identity) const;

  // Drops all jobs and ends the thread.
  void close();

  AggregatorStats stats() const;

 private:
  class Link;
  struct LanePart {
    wire::Topology topology;
    std::uint32_t owner_index;
    std::unique_ptr<proto::Owner> owner;
  };
  struct Job {
    std::map<std::uint32_t, LanePart> lanes;
    std::list<std::unique_ptr<Link>> links;
    Status broken;
    std::optional<proto::Metronome> metronome;  // from the first hello on
  };

  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return closing_; }
  void on_exception(const std::exception& exception) noexcept override;

  Status on_message(Link& link, wire::Message message);
  Status on_hello(Link& link, const wire::Message& message);
  Status on_goodbye(Link& link, const wire::Message& message);
  Status on_owner_message(Link& link, wire::Message message);
  static void check_pulses(Job& job, Clock::time_point now);
  static void listen(Job& job, Link& link, proto::Milliseconds now);
  void lose(Link& link, const Error& error);
  static void lose_silent(Job& job, Rank rank, proto::Milliseconds silence);
  static void break_job(Job& job, const Error& error);
  static void send_to_lane(Job& job, std::uint32_t lane, const wire::Message& message,
                           const Link* except);
  static void pace_owners(Job& job);
  void forget_closed();
  void publish_stats();

  std::map<std::uint64_t, Job> jobs_;
  bool closing_ = false;
  std::uint64_t bytes_sent_closed_ = 0;
  std::uint64_t bytes_received_closed_ = 0;

  mutable std::mutex mutex_;  // guards these two
  AggregatorStats stats_;
  std::set<Identity> serving_;

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
