// The loop of a progress thread.
#include "comm/progress_thread.hpp"

#include <pthread.h>

#include <cfenv>
#include <utility>

namespace sparsewire::comm {
namespace {

// Keeps a thread that cannot even wait from taking a whole processor.
constexpr std::chrono::milliseconds kPauseAfterException{1};

}  // namespace

void ProgressThread::start() {
  thread_ = std::thread([this] { run(); });
}

void ProgressThread::join() {
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::post(std::function<void()> call) {
  bool is_first;
  {
    const std::lock_guard lock(mutex_);
    is_first = posted_.empty();
    posted_.push_back(std::move(call));
  }
  if (is_first) poller_->wake();
}

void ProgressThread::run_posted() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
  }
  // Where one throws, those behind it must not get lost.
  for (const auto& call : calls) guarded(call);
}

template <typename Call>
void ProgressThread::guarded(Call&& call) {
  try {
    call();
  } catch (const std::exception& exception) {
    client_.on_exception(exception);
    wake();  // What was left undone must not wait for the next event.
    std::this_thread::sleep_for(kPauseAfterException);
  }
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "sparsewire");
  // A thread inherits rounding and flush-to-zero from its maker, where ranks may differ.
  std::fesetenv(FE_DFL_ENV);
  while (!client_.finished()) {
    guarded([this] { wait_for_events(); });
    run_posted();
    guarded([this] { client_.progress(Clock::now()); });
  }
}

void ProgressThread::wait_for_events() {
  for (const auto& event : poller_->wait(client_.patience(Clock::now()))) {
    static_cast<net::Connection*>(event.tag)->note_ready(event.readable, event.writable);
  }
}

}  // namespace sparsewire::comm
