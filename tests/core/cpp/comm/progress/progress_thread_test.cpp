// A progress thread and callers that work in its place: whoever has the turn does what is there to
// do, and nothing that is posted gets lost between two of them.
#include "comm/progress/progress_thread.hpp"

#include <doctest/doctest.h>

#include <atomic>

namespace progress_thread_test {

using namespace sparsewire::comm;
using namespace std::chrono_literals;
using Wake = ProgressThread::Wake;

class Client final : public ProgressClient {
 public:
  void progress(Clock::time_point) override { ++rounds; }
  std::optional<std::chrono::milliseconds> patience(Clock::time_point) override {
    return is_hurried ? std::optional{1ms} : std::nullopt;
  }
  void on_exception(const std::exception&) noexcept override {}
  bool finished() const override { return is_over; }

  std::atomic<int> rounds = 0;
  bool is_hurried = false;  // these two belong to the turn
  bool is_over = false;
};

// Ends the thread that it runs.
struct Running {
  Running() { thread.start(); }
  ~Running() {
    thread.post([this] { client.is_over = true; });
    thread.join();
  }

  Client client;
  ProgressThread thread{client};
};

Clock::time_point in(Clock::duration time) { return Clock::now() + time; }

template <typename Holds>
bool soon(Holds&& holds) {
  for (const auto end = in(20s); Clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (holds()) return true;
  }
  return false;
}

TEST_CASE("a caller that works runs what it has posted itself") {
  Running running;
  int own_runs = 0;
  for (int i = 0; i < 1000; ++i) {
    std::atomic<bool> is_done = false;
    std::thread::id runner;
    running.thread.post(
        [&] {
          runner = std::this_thread::get_id();
          is_done = true;
        },
        Wake::not_yet);
    if (running.thread.work([&] { return is_done.load(); }, in(20s))) {
      REQUIRE(is_done);
    } else {  // The thread had the turn, and was told.
      REQUIRE(soon([&] { return is_done.load(); }));
    }
    own_runs += runner == std::this_thread::get_id();
  }
  // Not all of them: a thread that is awake may take its turn between the post and the work.
  CHECK(own_runs > 0);
}

TEST_CASE("what is posted while a caller works is run by it, and what comes behind by the thread") {
  Running running;
  std::atomic<bool> has_come = false;
  std::thread::id runner;
  std::thread worker([&] {
    while (!running.thread.work([&] { return has_come.load(); }, in(20s))) {
    }
  });
  REQUIRE(soon([&] { return !running.thread.work([] { return true; }, in(0s)); }));
  running.thread.post([&] {
    runner = std::this_thread::get_id();
    has_come = true;
  });
  const auto expected = worker.get_id();
  worker.join();
  CHECK(runner == expected);
  std::atomic<bool> is_last_done = false;
  running.thread.post([&] { is_last_done = true; });
  CHECK(soon([&] { return is_last_done.load(); }));
}

TEST_CASE("a caller whose time is up gives the turn back") {
  Running running;
  while (!running.thread.work([] { return false; }, in(5ms))) {
  }
  std::atomic<bool> is_done = false;
  running.thread.post([&] { is_done = true; });
  CHECK(soon([&] { return is_done.load(); }));
}

TEST_CASE("what becomes due while a caller works is seen to by the thread") {
  Running running;
  std::atomic<bool> is_done = false;
  running.thread.post(
      [&] {
        running.client.is_hurried = true;
        is_done = true;
      },
      Wake::not_yet);
  (void)running.thread.work([&] { return is_done.load(); }, in(20s));
  const int rounds = running.client.rounds;
  CHECK(soon([&] { return running.client.rounds > rounds + 3; }));
}

TEST_CASE("a thread ends although a caller had the turn when its client was finished") {
  Client client;
  ProgressThread thread(client);
  thread.start();
  std::thread worker([&] {
    while (!thread.work([] { return false; }, in(20s))) {
    }
  });
  REQUIRE(soon([&] { return !thread.work([] { return true; }, in(0s)); }));
  thread.post([&] { client.is_over = true; });
  worker.join();
  thread.join();
}

TEST_CASE("many callers at once: everything is run once") {
  Running running;
  std::atomic<int> runs = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        std::atomic<bool> is_done = false;
        const auto call = [&] {
          ++runs;
          is_done = true;
        };
        running.thread.post(call, i % 3 ? Wake::not_yet : Wake::now);
        (void)running.thread.work([&] { return is_done.load(); }, in(20s));
        while (!is_done) std::this_thread::yield();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(runs == 4 * 2000);
}

}  // namespace progress_thread_test
