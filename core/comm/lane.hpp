// A lane: one progress thread with its own channel to every peer, this rank's worker half of the
// protocol and, unless the owners are dedicated, its owner half. Lanes share nothing.
#pragma once

#include <optional>
#include <span>

#include "comm/lane_protocol.hpp"
#include "comm/orders.hpp"
#include "comm/progress_thread.hpp"

namespace sparsewire::comm {

class Lane final : private ProgressClient {
 public:
  using Place = LanePlace;

  // Takes over one connected socket per owner; -1 at the own rank where owners are colocated. Those
  // that it has taken over are -1 afterwards, also where it throws.
  Lane(const Place& place, std::span<int> sockets, LaneListener& listener);

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
  class PeerChannel;
  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return is_finished_; }
  void on_exception(const std::exception& exception) noexcept override;

  bool take_on(const std::shared_ptr<Operation>& operation);
  void break_on(const Status& error);

  void receive();
  void produce();
  void flush();
  Status on_message(PeerChannel& from, wire::Message message);
  Status on_goodbye(PeerChannel& from, const wire::FrameHeader& header);
  Status on_silence(const wire::FrameHeader& header);
  void on_news(Channel& channel, const proto::Pulse::News& news);
  void lose(Channel& channel, const Error& error);

  void take_orders(Clock::time_point now);
  void do_break_off(const Error& error) noexcept;
  void begin_leaving(const Orders::Leave& order, Clock::time_point now);
  void finish_leaving(Clock::time_point now);
  void close_all() noexcept;

  const Place place_;
  LaneListener& listener_;
  LaneCounters counters_;
  PeerChannels peers_{counters_};
  LaneBook book_{place_};
  LaneProtocol protocol_{place_, peers_, book_, counters_, listener_};
  proto::Metronome metronome_;
  Orders orders_;
  struct Leaving {
    Clock::duration linger;  // without a byte that moves
    Clock::time_point until;
    std::size_t undelivered = SIZE_MAX;  // the least so far
  };
  std::optional<Leaving> leaving_;
  bool is_finished_ = false;

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
