// A group's part of a lane: this rank's halves of the protocols among its members, and how it ends.
// Whatever happens to it, the lane's other groups go on.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/transitions.hpp"
#include "comm/lanes/farewells.hpp"
#include "comm/lanes/lane_channels.hpp"
#include "comm/lanes/lane_protocol.hpp"
#include "comm/lanes/lane_waits.hpp"
#include "comm/progress/progress_thread.hpp"

namespace sparsewire::comm {

class LaneGroup;

// A group works until it is told to leave. It has finished once its last words are sent or nobody
// reads them; it has ended once the lane has let go of it.
enum class GroupLife : std::uint8_t { working, leaving, finished, ended };

enum class GroupStep : std::uint8_t { leave, finish, end };

inline constexpr Transition<GroupLife, GroupStep> kGroupTransitions[] = {
    {GroupLife::working, GroupStep::leave, GroupLife::leaving},
    {GroupLife::leaving, GroupStep::finish, GroupLife::finished},
    {GroupLife::finished, GroupStep::end, GroupLife::ended},
};

// What a group needs of the lane that it is in.
class GroupHost {
 public:
  virtual ~GroupHost() = default;

  // From any thread. post() has a call made in a turn. note_order() has orders taken, and takes no
  // memory.
  virtual void post(std::function<void()> call, ProgressThread::Wake when) = 0;
  virtual void note_order() noexcept = 0;
  virtual void wake() = 0;
  // See ProgressThread.
  virtual bool work(const std::function<bool()>& is_done, Clock::time_point until) = 0;

  // In a turn.
  virtual LaneChannels& channels() = 0;
  // Takes in the groups that have joined, before any of their calls.
  virtual void welcome() = 0;
  // Gives the group its part of each turn, until it is idle.
  virtual void make_busy(LaneGroup& group) = 0;
  // Loses a peer, for all groups, when there is no memory to tell it why.
  virtual void lose_untold(PeerChannel& channel) noexcept = 0;
};

class LaneGroup final : public std::enable_shared_from_this<LaneGroup> {
 public:
  // `members` are its owners as peers of the lane. It works once it has joined the lane.
  LaneGroup(const LanePlace& place, std::uint32_t number, const std::vector<std::uint32_t>& members,
            GroupHost& lane, LaneListener& listener);

  // --- From any thread; these only ask ---

  // Runs this lane's part of the operation as a stream.
  void submit(std::shared_ptr<Operation> operation, ProgressThread::Wake when);
  // Tells lane 0 of an operation that was just issued: of every one if owners are colocated,
  // because ranks join on that lane; else of bad input only, which the lane refuses.
  void introduce(std::shared_ptr<Operation> operation);
  // Carries this lane's parts of an operation that all ranks have joined on the first lane.
  void exchange(std::shared_ptr<Operation> operation, LaneListener::Order order);
  void set_link(const proto::LinkFigures& link);
  // Answers in one of the lane's next turns; never, once the group has left.
  void survey(std::size_t most_operations, const std::shared_ptr<std::promise<LaneSurvey>>& answer);
  void fail(std::uint64_t seq);
  // These two take no memory, because it may have run out.
  void break_off(Error error) noexcept;
  void leave(std::uint64_t issued, Clock::duration linger) noexcept;

  // See ProgressThread.
  bool work(const std::function<bool()>& is_done, Clock::time_point until);
  void wake();

  // Blocks until the lane has let go of it, after leave().
  void await_end();

  const LaneCounters& counters() const { return peers_.counters; }

  // --- From the lane, in its turn ---

  std::uint32_t number() const { return peers_.group(); }
  void begin();
  void take_orders(Clock::time_point now);
  void disown() { protocol_.disown(); }
  void watch_slots(ProgressThread& thread) { protocol_.watch_slots(thread); }
  void run_slots(Clock::time_point now) { protocol_.run_slots(now); }
  void run_exchanges() { protocol_.run_exchanges(); }
  // Sends at most one message to every owner in turn; false if there is no more for now.
  bool produce();
  void pace() { protocol_.streams().pace(); }
  bool has_work(Clock::time_point now) { return protocol_.has_work(now); }
  bool is_broken() const { return protocol_.is_broken(); }
  GroupLife life() const { return life_; }
  // The first deadline or timer.
  Clock::time_point next_due() const {
    const auto due = std::min(book_.next_deadline(), protocol_.next_due());
    return peers_.log ? std::min(due, peers_.log->next_due()) : due;
  }
  void check_deadlines(Clock::time_point now);
  // Notes for the timeline the peers that the oldest operation waits for, if there is nothing else
  // to do.
  void note_waiting(Clock::time_point now);
  void finish_leaving(Clock::time_point now);
  // Has peers connected that have held up the oldest operation for a while.
  void look_for_missing();
  void on_exception(const std::exception& exception) noexcept;
  // Makes a call for the group alone. An exception ends this group and no other.
  template <typename Call>
  void contain(Call&& call) noexcept {
    try {
      call();
    } catch (const std::exception& exception) {
      on_exception(exception);
    }
  }
  // Whether turns do nothing here until a frame, a call or an order comes.
  bool is_idle() { return life_ == GroupLife::working && book_.empty() && protocol_.is_idle(); }
  // Its entry in the lane's list of the busy, while it is not there: so no memory is needed for it.
  std::list<LaneGroup*>& idle_entry() { return idle_entry_; }

  bool has(const PeerChannel& channel) const { return peers_.has(channel); }
  // A channel that was asked for, or that has got a connection.
  void on_active(PeerChannel& channel);
  Status accepts(const PeerChannel& from, const wire::FrameHeader& header) const;
  std::byte* place(const PeerChannel& from, const wire::FrameHeader& header) const;
  Status on_message(PeerChannel& from, wire::Message message);
  void on_silence(const PeerChannel& channel, const proto::Pulse::News& news);
  // Whether the connection with a peer may end without an error.
  bool may_go(const PeerChannel& channel) const;
  void on_lost(PeerChannel& channel, const Error& error);
  // The same, if there is no memory to say more.
  void on_lost_untold(const PeerChannel& channel) noexcept;
  // Tells a peer that it was given up.
  void say_lost(PeerChannel& channel, const Error& error);
  // Once it is finished: the last words that are left to say.
  Farewell take_farewell();
  // From then on it does nothing.
  void end();

 private:
  // Orders to carry out in the next turn: to break off with an error; and to leave, after having
  // issued `issued` operations, once no byte has moved for `linger`.
  struct Leave {
    std::uint64_t issued;
    Clock::duration linger;
  };
  struct Orders {
    Status to_break;
    std::optional<Leave> to_leave;
  };

  template <typename Call>
  void post(Call&& call, ProgressThread::Wake when = ProgressThread::Wake::now);
  ProgressThread::Wake wake_for(const Operation& operation, ProgressThread::Wake when) const;
  template <typename Give>
  void order(Give&& give) noexcept;
  bool take_on(const std::shared_ptr<Operation>& operation);
  void break_on(const Status& error);
  Status on_goodbye(PeerChannel& from, const wire::FrameHeader& header);
  Status on_others_silence(const wire::FrameHeader& header);
  void do_break_off(const Error& error) noexcept;
  void lose_peers() noexcept;
  void begin_leaving(const Leave& order, Clock::time_point now);
  void prepare_farewell(wire::Message words);
  void tell(PeerChannel& channel) noexcept;
  std::size_t undelivered();
  void move(GroupStep step) { life_ = next_state(kGroupTransitions, life_.load(), step); }

  std::list<LaneGroup*> idle_entry_{this};
  const LanePlace place_;
  GroupHost& lane_;
  LaneListener& listener_;
  const std::vector<std::uint32_t> members_;
  GroupChannels peers_;
  LaneBook book_;
  LaneProtocol protocol_{place_, peers_, book_, listener_};
  LaneWaits waits_{place_, peers_, book_, protocol_};
  std::vector<bool> has_left_;                // by owner: it said goodbye
  std::optional<std::uint64_t> last_looked_;  // the oldest operation at the last look

  std::mutex mutex_;  // guards the orders
  Orders orders_;
  std::optional<Farewell> farewell_;
  struct Leaving {
    Clock::duration linger;  // time without a byte that moves
    Clock::time_point until;
    bool has_all_calls = false;
    std::size_t undelivered = SIZE_MAX;  // the least so far
    // By peer: the bytes sent on its connection when all of the group's had been sent.
    std::map<std::uint32_t, std::uint64_t> sent_by{};
  };
  Leaving leaving_{};
  std::atomic<GroupLife> life_ = GroupLife::working;  // moved by the lane alone
};

}  // namespace sparsewire::comm
