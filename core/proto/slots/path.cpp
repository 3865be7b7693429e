// Counts the time that was waited in vain, pause by pause.
#include "proto/slots/path.hpp"

#include <algorithm>

#include "wire/greeting.hpp"

namespace sparsewire::proto {
namespace {

// Greetings come less and less often, but so often that several are within the patience.
constexpr int kPausesPerPatience = 8;
constexpr Microseconds kFirstPause{250'000};
constexpr Microseconds kLongestPause{1'000'000};

// One of so many greetings finds out what is wrong: by turns, whether the path is narrow and
// whether the process hears.
constexpr std::uint32_t kFindingOut = 3;

}  // namespace

SlotPath::SlotPath(Microseconds patience, std::size_t datagram_bytes, std::uint64_t greeted)
    : patience_(patience),
      datagram_bytes_(datagram_bytes),
      said_(greeted / wire::kProbes * wire::kProbes),
      answered_(greeted) {}

void SlotPath::await(bool is_awaited, Microseconds now) {
  if (is_awaited == (state_ != PathState::resting)) return;
  trust(is_awaited ? PathStep::await : PathStep::rest, now);
}

void SlotPath::trust(PathStep step, Microseconds now) {
  move(step);
  asked_ = 0;
  silence_ = Microseconds{0};
  is_noted_ = passes_short_ = false;
  pause_ = std::min(kFirstPause, patience_ / kPausesPerPatience);
  next_ = now + pause_;
}

void SlotPath::on_result(Microseconds now) {
  if (state_ != PathState::resting) trust(PathStep::answer, now);
}

bool SlotPath::is_answer(std::uint64_t number) const {
  return state_ != PathState::resting && number > answered_ && number < said_ + wire::kProbes;
}

void SlotPath::on_welcome(std::uint64_t number, std::size_t bytes, Microseconds now) {
  if (bytes < datagram_bytes_) return on_noted(number, bytes);
  if (!is_answer(number)) return;
  answered_ = number;
  trust(PathStep::answer, now);
}

void SlotPath::on_noted(std::uint64_t number, std::size_t bytes) {
  if (!is_answer(number)) return;
  (bytes < datagram_bytes_ ? passes_short_ : is_noted_) = true;
}

// A pause counts as long as it was meant to be: a thread that was stopped has not listened.
std::optional<SlotPath::Hello> SlotPath::ask(Microseconds now) {
  if (state_ == PathState::resting || now < next_) return {};
  silence_ += pause_;
  const Microseconds longest = std::min(kLongestPause, patience_ / kPausesPerPatience);
  pause_ = std::min(2 * pause_, longest);
  if (silence_ < patience_) pause_ = std::min(pause_, patience_ - silence_);
  next_ = now + pause_;
  move(PathStep::ask);
  return next_hello();
}

// If the full size is that of the shortest datagram, no greeting can tell a narrow path.
SlotPath::Hello SlotPath::next_hello() {
  said_ += wire::kProbes;
  if (++asked_ % kFindingOut != 0) return {said_ + wire::kFullProbe, datagram_bytes_};
  const bool is_short = asked_ % (2 * kFindingOut) != 0 && wire::kMinDatagram < datagram_bytes_;
  if (is_short) return {said_ + wire::kNarrowProbe, wire::kMinDatagram};
  return {said_ + wire::kProcessProbe, datagram_bytes_};
}

std::optional<Microseconds> SlotPath::next_due() const {
  if (state_ == PathState::resting) return {};
  return next_;
}

}  // namespace sparsewire::proto
