// A lane: one progress thread with its own connection to every peer, this rank's worker half of
// the protocol and, unless the owners are dedicated, its owner half. Lanes share nothing.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/heartbeat.hpp"
#include "comm/operation.hpp"
#include "comm/progress_thread.hpp"
#include "proto/exchange/peer.hpp"
#include "proto/stream/owner.hpp"
#include "proto/stream/worker.hpp"

namespace sparsewire::comm {

// What a lane tells its communicator, from the lane's thread.
class LaneListener {
 public:
  virtual ~LaneListener() = default;

  // The lane is done with the operation, well or not, and touches its memory no more.
  virtual void operation_left(std::uint64_t seq) = 0;
  // This one operation cannot be done; others go on.
  virtual void operation_failed(std::uint64_t seq, Error error) = 0;
  // All ranks have joined the operation, and know which way it goes.
  virtual void operation_chosen(std::uint64_t seq, proto::Route route) = 0;
  // Nothing has come from a peer for a while, or it was heard again.
  virtual void peer_silent(const Silence& silence) = 0;
  // Nothing can go on.
  virtual void broken(Error error) = 0;
};

// Complete for an operation before its end is told. Bytes are those of the frames of collectives,
// with their headers: what the lane has given to its connections, and what it has taken in.
struct LaneCounters {
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> bytes_received{0};
  std::atomic<std::uint64_t> segments_sent{0};
  std::atomic<std::uint64_t> results_received{0};
  std::atomic<std::uint64_t> chunks_empty{0};
};

class Lane final : private ProgressClient {
 public:
  struct Place {
    wire::Topology topology;
    std::uint32_t lane;
    Rank rank;
    bool dedicated;
  };

  // Takes over one connected socket per owner; -1 at the own rank where owners are colocated. Those
  // that it has taken over are -1 afterwards, also where it throws.
  Lane(const Place& place, std::span<int> sockets, LaneListener& listener);
  ~Lane() override;

  // All of these only ask; they may be called from any thread.
  void start() { thread_.start(); }
  // Runs this lane's part of the operation as a stream.
  void submit(std::shared_ptr<Operation> operation);
  // Tells lane 0 of an operation that was just issued: of every one where owners are colocated,
  // because that lane carries all exchanges, and of bad input anywhere, which it refuses.
  void introduce(std::shared_ptr<Operation> operation);
  void set_link(const proto::LinkModel& link);
  void fail(std::uint64_t seq);
  // These two take no memory, which may be what is lacking.
  void break_off(Error error) noexcept;
  void leave(std::uint64_t issued, Clock::duration linger) noexcept;

  // Blocks until the thread has ended, after leave().
  void await_end() { thread_.join(); }

  const LaneCounters& counters() const { return counters_; }

  // In a forked child, where the lane's thread is not: see Communicator::disown().
  void disown();

 private:
  class Link;
  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override;
  void on_exception(const std::exception& exception) noexcept override;

  void receive();
  void produce();
  void flush();
  void pace_owner();
  bool owes_results() const;
  bool is_any_behind() const;
  void count_received(const wire::FrameHeader& header);
  void finish_leaving(Clock::time_point now);

  Status accepts(const Link& link, const wire::FrameHeader& header) const;
  Status on_message(Link& link, wire::Message message);
  Status on_owner_message(Rank rank, wire::Message message);
  Status on_worker_message(std::uint32_t owner, const wire::Message& message);
  Status on_peer_message(Rank rank, const wire::Message& message);
  Status on_control_message(const Link& link, const wire::Message& message);
  Status broadcast(proto::Owner::Outbox outbox);
  void apply(proto::Peer::Effects effects);
  bool can_exchange() const;
  void run_exchanges();
  void send_to_owner(std::uint32_t owner, wire::Message message);
  void send_to_links(const wire::Message& message);
  void send(Link& link, wire::Message message);
  // The ranks that hold up an operation, and in which one: itself, or one that comes first.
  struct Late {
    std::uint64_t seq;
    std::vector<Rank> ranks;
  };
  Late late_for(std::uint64_t seq) const;
  std::vector<Rank> missing(std::uint64_t seq) const;
  void end_operation(std::uint64_t seq);
  void lose(Link& link, const Error& error);

  void check_pulses(Clock::time_point now);
  bool has_pulse() const;
  void listen(Link& link, proto::Milliseconds now);
  void lose_silent(Link& link, proto::Milliseconds silence);
  std::vector<Rank> silent_ranks() const;
  std::string name_of(const Link& link) const;
  Status on_silence(const wire::Message& message);

  void do_submit(const std::shared_ptr<Operation>& operation);
  bool is_introduced_first() const { return !place_.dedicated && place_.lane == 0; }
  void do_introduce(const std::shared_ptr<Operation>& operation);
  void refuse(std::uint64_t seq, const Error& bad_input, proto::Peer::Effects& effects);
  bool take_on(const std::shared_ptr<Operation>& operation);
  void do_fail(std::uint64_t seq);
  struct LeaveOrder {
    std::uint64_t issued;
    Clock::duration linger;
  };
  void take_orders();
  void do_break_off(const Error& error) noexcept;
  static void say_last_words(Link& link, const Error& error) noexcept;
  void do_leave(const LeaveOrder& order);
  void check_deadlines(Clock::time_point now);
  void check_departures();
  Error timeout_error(std::uint64_t seq, const Late& late) const;
  bool is_self(std::uint32_t owner) const;

  const Place place_;
  LaneListener& listener_;
  LaneCounters counters_;

  std::vector<std::unique_ptr<Link>> links_;  // per owner; null at the own rank
  proto::Worker worker_;
  std::unique_ptr<proto::Owner> owner_;  // null where the owners are dedicated
  std::unique_ptr<proto::Peer> peer_;    // null there, too, and in all lanes but the first
  proto::Costs costs_;
  std::map<std::uint64_t, std::shared_ptr<Operation>> in_flight_;
  std::map<Rank, std::uint64_t> departed_;  // rank -> operations it issued before it left
  proto::Metronome metronome_;
  Clock::time_point next_deadline_ = Clock::time_point::max();
  bool broken_ = false;
  struct Leaving {
    Clock::duration linger;  // without a byte that moves
    Clock::time_point until;
    std::size_t undelivered = SIZE_MAX;  // the least so far
  };
  std::optional<Leaving> leaving_;
  bool finished_ = false;

  std::mutex orders_mutex_;  // guards these two
  Status break_order_;
  std::optional<LeaveOrder> leave_order_;
  std::atomic<bool> has_orders_{false};

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
