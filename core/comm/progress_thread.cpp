// The loop of a progress thread.
#include "comm/progress_thread.hpp"

#include <pthread.h>

#include <utility>

namespace sparsewire::comm {

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
  for (const auto& call : calls) call();
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "sparsewire");
  while (!client_.finished()) {
    for (const auto& event : poller_->wait(client_.patience(Clock::now()))) {
      static_cast<net::Connection*>(event.tag)->note_ready(event.readable, event.writable);
    }
    run_posted();
    client_.progress(Clock::now());
  }
}

}  // namespace sparsewire::comm
