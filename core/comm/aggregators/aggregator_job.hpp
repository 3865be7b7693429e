// One job at a dedicated aggregator: the channels of its workers, and an owner half per lane. It
// trusts none of them, and its failure does not touch other jobs.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>

#include "comm/aggregators/job_slots.hpp"
#include "comm/progress/channel.hpp"
#include "proto/stream/owner/owner.hpp"

namespace sparsewire::comm {

struct AggregatorLimits {
  std::size_t memory = std::size_t{2} << 30;      // bytes that all jobs together may need
  std::size_t job_memory = std::size_t{1} << 30;  // and one job
  std::uint32_t window = 1u << 20;                // bytes that a worker may have in flight
  // How long a channel may stay without a hello. Ranks have up to 300 s to find each other, and
  // say nothing before they have.
  std::chrono::milliseconds grace{330'000};
};

// Memory that a job may come to need is set aside before it begins, so that no other job can take
// it.
class Budget {
 public:
  explicit Budget(const AggregatorLimits& limits) : limits_(limits) {}

  // Sets aside what one more lane may need, with `for_slots` bytes for slots, for a job that has
  // `reserved` bytes already.
  Status reserve(const wire::Topology& topology, std::size_t for_slots, std::size_t& reserved);
  void give_back(std::size_t& reserved);

  std::size_t reserved() const { return reserved_; }
  const AggregatorLimits& limits() const { return limits_; }

 private:
  const AggregatorLimits limits_;
  std::size_t reserved_ = 0;  // bytes, by all jobs
};

class AggregatorJob {
 public:
  // What the handshake has proved about a connection.
  struct Identity {
    std::uint64_t job;
    std::uint32_t world_size;
    Rank rank;
    std::uint32_t lane;

    auto operator<=>(const Identity&) const = default;
  };

  struct WorkerChannel final : Channel, net::FrameHandler {
    WorkerChannel(const Identity& identity, int fd)
        : Channel(identity.rank, fd), identity(identity) {}

    Status accepts(std::uint32_t, const wire::FrameHeader& header) override {
      return job->accepts(*this, header);
    }
    std::byte* place(std::uint32_t, const wire::FrameHeader&) override { return nullptr; }
    Status on_message(std::uint32_t, wire::Message message) override {
      return job->on_message(*this, std::move(message));
    }

    const Identity identity;
    AggregatorJob* job = nullptr;
    bool greeted = false;                      // its hello was taken
    Clock::time_point vouched = Clock::now();  // when it last had a place in a job that works
  };

  explicit AggregatorJob(Budget& budget) : budget_(budget) {}

  void add(std::unique_ptr<WorkerChannel> channel);
  // Lets its workers send datagrams, too. Only the first call counts.
  void open_slots(std::uint64_t job, std::uint32_t workers, const DatagramSeal& seal);
  void on_datagram(std::span<std::byte> data, const net::Address& from, net::UdpSocket& socket);
  // None if it has no slots.
  const std::optional<JobSlots>& slots() const { return slots_; }

  // One round: receives and sends. Now and then it also reaps.
  void serve(Clock::time_point now, bool reaps);
  // Whether there is something to do right away; and when the next look at its pulses is due.
  bool has_work() const;
  std::optional<proto::Milliseconds> next_look() const;

  // Ends the job if there is no memory even to say so: the ends of the connections say it.
  void drop() noexcept;

  // Lets go of closed channels, after visit(channel) for each, and of memory that is not needed any
  // more.
  template <typename Visit>
  void forget_closed(Visit&& visit) {
    channels_.remove_if([&](const std::unique_ptr<WorkerChannel>& channel) {
      if (channel->connection.is_open()) return false;
      visit(*channel);
      return true;
    });
    if (channels_.empty() || broken_) budget_.give_back(reserved_);
  }

  const std::list<std::unique_ptr<WorkerChannel>>& channels() const { return channels_; }
  std::size_t memory_held() const { return held_; }

 private:
  struct Lane {
    wire::Topology topology;
    std::uint32_t owner_index;
    proto::Owner owner;
  };

  Status accepts(const WorkerChannel& channel, const wire::FrameHeader& header) const;
  Status on_message(WorkerChannel& channel, wire::Message message);
  Status on_hello(WorkerChannel& channel, const wire::Message& message);
  Status begin_lane(const wire::Hello& hello);
  Status on_goodbye(WorkerChannel& channel, const wire::Message& message);
  void send_to_lane(std::uint32_t lane, const wire::Message& message, const WorkerChannel* except);
  void send_results(std::uint32_t lane, const proto::Owner::Outbox& outbox);
  void receive();
  void flush();
  void pace_owners();
  void check_memory();

  void on_news(const WorkerChannel& channel, const proto::Pulse::News& news);
  void lose(WorkerChannel& channel, const Error& error);
  void break_off(const Error& error);
  void reap(Clock::time_point now);

  bool has_pulse(Rank rank) const;
  bool is_behind(std::uint32_t lane) const { return queued(lane) > kMaxQueuedForWorker; }
  std::size_t queued(std::uint32_t lane) const;
  std::size_t memory() const;

  Budget& budget_;
  std::map<std::uint32_t, Lane> lanes_;
  std::list<std::unique_ptr<WorkerChannel>> channels_;
  std::optional<JobSlots> slots_;
  Status broken_;
  std::optional<proto::Metronome> metronome_;  // from the first hello on
  std::size_t reserved_ = 0;                   // bytes, for all lanes that have begun
  std::size_t held_ = 0;                       // bytes, when last looked at
};

}  // namespace sparsewire::comm
