// The loop of a progress thread.
#include "comm/progress/progress_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <cfenv>
#include <utility>

namespace sparsewire::comm {
namespace {

// Keeps a thread that cannot even wait from taking a whole processor.
constexpr std::chrono::milliseconds kPauseAfterException{1};

// Before a caller sleeps, it goes on looking for so long, and lets other threads run meanwhile: a
// processor that slept takes longer to wake than a small collective takes.
constexpr std::chrono::microseconds kVigil{100};

// A thread inherits rounding and flush-to-zero from its maker. Callers have settings of their own,
// in which ranks may differ.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&former_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&former_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t former_;
};

}  // namespace

void ProgressThread::start(std::optional<std::uint32_t> processor) {
  thread_ = std::thread([this] { run(); });
  if (!processor || *processor >= CPU_SETSIZE) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(*processor, &one);
  (void)pthread_setaffinity_np(thread_.native_handle(), sizeof one, &one);
}

void ProgressThread::join() {
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::wake() {
  const std::lock_guard lock(mutex_);
  poller_->wake();
}

void ProgressThread::close() {
  const std::lock_guard lock(mutex_);
  poller_->disown();
}

void ProgressThread::post(std::function<void()> call, Wake when) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(call));
  if (is_woken_ || when == Wake::not_yet) return;
  is_woken_ = true;
  poller_->wake();
}

void ProgressThread::run_posted() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
    is_woken_ = false;
  }
  // If one throws, the later ones must not get lost.
  for (const auto& call : calls) guarded(call);
}

template <typename Call>
void ProgressThread::guarded(Call&& call) {
  try {
    call();
  } catch (const std::exception& exception) {
    client_.on_exception(exception);
    wake();  // Work left undone must not wait for the next event.
    std::this_thread::sleep_for(kPauseAfterException);
  }
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "sparsewire");
  const DefaultFloats floats;
  Patience patience{0};
  while (take_turn(patience)) {
    if (patience != Patience{0}) guarded([&] { poller_->idle(patience); });
  }
}

bool ProgressThread::take_turn(Patience& patience) {
  const std::lock_guard turn(turn_);
  if (client_.finished()) return false;
  guarded([this] { note_events(Patience{0}); });
  get_on();
  patience = client_.patience(Clock::now());
  return !client_.finished();
}

// Meanwhile the progress thread idles, and does not hear the events that this thread waits for.
bool ProgressThread::work(const std::function<bool()>& is_done, Clock::time_point until) {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn) {
    wake();  // The turn's holder may have run posted calls before this caller came.
    return false;
  }
  if (client_.finished()) return false;
  poller_->set_idlers_deaf(true);
  work_until(is_done, until);
  poller_->set_idlers_deaf(false);
  // The thread does not know of the end, or of a deadline that has come up since it began to idle.
  if (client_.finished() || client_.patience(Clock::now())) poller_->stir();
  return true;
}

void ProgressThread::work_until(const std::function<bool()>& is_done, Clock::time_point until) {
  const DefaultFloats floats;
  const auto vigil = Clock::now() + kVigil;
  while (true) {
    get_on();
    const auto now = Clock::now();
    if (is_done() || now >= until || client_.finished()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    const bool stays_awake = now < vigil;
    const Patience patience = std::min(client_.patience(now).value_or(left), left);
    guarded([&] { note_events(stays_awake ? Patience{0} : patience); });
    if (stays_awake) std::this_thread::yield();
  }
}

void ProgressThread::get_on() {
  run_posted();
  guarded([this] { client_.progress(Clock::now()); });
}

void ProgressThread::note_events(Patience patience) {
  for (const auto& event : poller_->wait(patience)) {
    event.ready->note_ready(event.readable, event.writable);
  }
}

}  // namespace sparsewire::comm
