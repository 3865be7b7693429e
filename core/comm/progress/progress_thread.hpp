// A thread that waits for sockets, for posted calls and for the clock, and lets its client get on.
// All of the client's state belongs to whoever has the turn: this thread, or a caller that has
// nothing to do but to wait, and so works in its place. So the state needs no other lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "net/poller.hpp"
#include "net/ready.hpp"

namespace sparsewire::comm {

using Clock = std::chrono::steady_clock;

class ProgressClient {
 public:
  virtual ~ProgressClient() = default;

  // Called in every round, after the sockets were noted and the posted calls were run.
  virtual void progress(Clock::time_point now) = 0;

  // How long to wait for the next round; none for "until something happens".
  virtual std::optional<std::chrono::milliseconds> patience(Clock::time_point now) = 0;

  // Something threw, in a posted call, in progress(), or while waiting; the thread goes on.
  virtual void on_exception(const std::exception& exception) noexcept = 0;

  // True once the thread may end.
  virtual bool finished() const = 0;
};

class ProgressThread {
 public:
  explicit ProgressThread(ProgressClient& client) : client_(client) {}
  ~ProgressThread() { join(); }

  // On one processor alone, where there is a number; it is a wish, which the system may refuse.
  void start(std::optional<std::uint32_t> processor = {});
  void join();

  // Runs the call in its turn. From any thread; dropped without being run after the end. Where the
  // caller is about to work itself, nobody is woken for it.
  enum class Wake : bool { now, not_yet };
  void post(std::function<void()> call, Wake when = Wake::now);

  // Works in the calling thread until it is done or time is up; false where another one has the
  // turn. A thread that would wait anyway saves two switches between threads.
  bool work(const std::function<bool()>& is_done, Clock::time_point until);

  // Has the client's progress() called soon. From any thread.
  void wake();

  // Only from whoever has the turn, or before the thread starts.
  void watch(net::Ready& ready) { ready.watch(poller_); }

  // Has the client's progress() called at every interval, too. Once, before the thread starts.
  void tick_every(std::chrono::milliseconds interval) { poller_->tick_every(interval); }

  // Behind join(): leaves no descriptor open. Who calls after that is not heard.
  void close();

  // In a forked child, where the thread is not.
  void disown() { poller_->disown(); }

 private:
  using Patience = std::optional<std::chrono::milliseconds>;

  void run();
  // False after the last turn; else how long to idle until the next one.
  bool take_turn(Patience& patience);
  void work_until(const std::function<bool()>& is_done, Clock::time_point until);
  template <typename Call>
  void guarded(Call&& call);
  void note_events(Patience patience);
  void get_on();
  void run_posted();

  ProgressClient& client_;
  std::shared_ptr<net::Poller> poller_ = std::make_shared<net::Poller>();
  std::thread thread_;
  std::mutex turn_;
  std::mutex mutex_;  // guards the rest
  std::vector<std::function<void()>> posted_;
  bool is_woken_ = false;  // for what is posted
};

}  // namespace sparsewire::comm
