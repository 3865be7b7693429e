// A thread that waits for sockets, for posted calls and for the clock, and lets its client get on.
// All of the client's state belongs to the thread that has the turn: this one, or that of a caller
// that would only wait, and works in its place. So the state needs no other lock.
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

  // Whether the thread may end.
  virtual bool finished() const = 0;
};

class ProgressThread {
 public:
  explicit ProgressThread(ProgressClient& client) : client_(client) {}
  ~ProgressThread() { join(); }

  // With a number, the thread runs on this processor alone, unless the system refuses.
  void start(std::optional<std::uint32_t> processor = {});
  void join();

  // Runs the call in a turn. From any thread. After the end, the call is dropped without being run.
  // `not_yet` wakes no thread, because the caller is about to work itself.
  enum class Wake : bool { now, not_yet };
  void post(std::function<void()> call, Wake when = Wake::now);

  // Works in the calling thread until `is_done` or until time is up; false if another thread has
  // the turn. A thread that would wait anyway saves two switches between threads.
  bool work(const std::function<bool()>& is_done, Clock::time_point until);

  // Has the client's progress() called soon. From any thread.
  void wake();

  // Only from the thread that has the turn, or before the thread starts.
  void watch(net::Ready& ready) { ready.watch(poller_); }

  // Has the client's progress() called at every interval, too. May be called once, before the
  // thread starts.
  void tick_every(std::chrono::milliseconds interval) { poller_->tick_every(interval); }

  // After join(): closes all descriptors. Later calls have no effect.
  void close();

  // In a forked child, where the thread does not exist.
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
  bool is_woken_ = false;  // for the posted calls
};

}  // namespace sparsewire::comm
