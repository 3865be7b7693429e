// A lane: one progress thread with its own channel to every peer, this rank's worker half of the
// protocol and, unless the owners are dedicated, its owner half. Lanes share nothing.
#pragma once

#include <optional>
#include <span>

#include "comm/lane_protocol.hpp"
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
  void set_link(const proto::LinkFigures& link);
  void fail(std::uint64_t seq);
  // These two take no memory, which may be what is lacking.
  void break_off(Error error) noexcept;
  void leave(std::uint64_t issued, Clock::duration linger) noexcept;

  // See ProgressThread.
  bool work(const std::function<bool()>& is_done, Clock::time_point until) {
    return thread_.work(is_done, until);
  }

  // Blocks until the thread has ended, after leave().
  void await_end() { thread_.join(); }

  const LaneCounters& counters() const { return peers_.counters; }

  // In a forked child, where the lane's thread is not: see Communicator::disown().
  void disown();

 private:
  class PeerChannel;
  // What to do as soon as may be: why to break off; and after how many operations to leave, once
  // nothing has moved for so long.
  struct Leave {
    std::uint64_t issued;
    Clock::duration linger;
  };
  struct Orders {
    Status to_break;
    std::optional<Leave> to_leave;
  };

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

  template <typename Give>
  void order(Give&& give) noexcept;
  void take_orders(Clock::time_point now);
  void do_break_off(const Error& error) noexcept;
  void begin_leaving(const Leave& order, Clock::time_point now);
  void finish_leaving(Clock::time_point now);
  void close_all() noexcept;

  const Place place_;
  LaneListener& listener_;
  PeerChannels peers_;
  LaneBook book_{place_, peers_};
  LaneProtocol protocol_{place_, peers_, book_, listener_};
  proto::Metronome metronome_;

  std::mutex mutex_;  // guards the orders
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
