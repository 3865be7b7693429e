// A thread that waits for sockets, for posted calls and for the clock, and lets its client get on.
// All of the client's state belongs to this thread, so it needs no locks.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "net/connection.hpp"
#include "net/poller.hpp"

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

  void start();
  void join();

  // Runs the call on the thread. From any thread; dropped without being run after the end.
  void post(std::function<void()> call);

  // Has the client's progress() called soon. From any thread.
  void wake() { poller_->wake(); }

  // Only from the thread itself, or before it starts.
  void watch(net::Connection& connection) { connection.watch(poller_); }

  // Has the client's progress() called at every interval, too. Once, before the thread starts.
  void tick_every(std::chrono::milliseconds interval) { poller_->tick_every(interval); }

  // In a forked child, where the thread is not.
  void disown() { poller_->disown(); }

 private:
  void run();
  template <typename Call>
  void guarded(Call&& call);
  void wait_for_events();
  void run_posted();

  ProgressClient& client_;
  std::shared_ptr<net::Poller> poller_ = std::make_shared<net::Poller>();
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace sparsewire::comm
