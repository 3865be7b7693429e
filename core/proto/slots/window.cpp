// Estimates the round trip, and moves the window.
#include "proto/slots/window.hpp"

#include <algorithm>
#include <utility>

namespace sparsewire::proto {
namespace {

constexpr Microseconds kLeastTimeout{2'000};
constexpr Microseconds kLeastOfOvertaken{1000};
constexpr Microseconds kMostTimeout{1'000'000};
constexpr Microseconds kFirstTimeout{100'000};

constexpr Microseconds kMostBelieved{10'000};
constexpr Microseconds kMostBelievedOfOthers{2'000};
constexpr int kLeastTimesBelieved = 8;
constexpr int kSamplesOfStretch = 16;

constexpr double kLeastWindow = 4;
// The share of the window to which it doubles again after a pause (RFC 2861).
constexpr double kKept = 0.75;

// What a round trip adds, and what a loss leaves.
constexpr double kGrowth = 2;
constexpr double kShrinking = 0.8;
constexpr double kCongestedGrowth = 1;
constexpr double kCongestedShrinking = 0.4;
constexpr double kSilentShrinking = 0.5;

// Beyond the window, for each result.
constexpr std::size_t kRepeats = 2;

constexpr Microseconds kRateStretch{10'000};

}  // namespace

void RoundTrip::add(Microseconds sample, bool was_last) {
  if (least_ == Microseconds{0}) {
    least_ = std::max(sample, Microseconds{1});
    smoothed_ = least_;
    variation_ = smoothed_ / 2;
    return;
  }
  least_ = std::clamp(sample, Microseconds{1}, least_);
  const Exact exact(std::min(sample, most_believed(sample, was_last)));
  variation_ = 0.75 * variation_ + 0.25 * Exact(std::chrono::abs(smoothed_ - exact));
  smoothed_ = 0.875 * smoothed_ + 0.125 * exact;
}

Microseconds RoundTrip::most_believed(Microseconds sample, bool was_last) {
  current_least_ = std::min(current_least_, sample);
  if (--samples_left_ <= 0) {
    recent_least_ = std::exchange(current_least_, Microseconds::max());
    samples_left_ = kSamplesOfStretch;
  }
  const Microseconds most = was_last ? kMostBelieved : kMostBelievedOfOthers;
  return std::max({most, kLeastTimesBelieved * least_, 2 * recent_least_});
}

Microseconds RoundTrip::timeout() const { return std::max(timeout_of_overtaken(), kLeastTimeout); }

Microseconds RoundTrip::timeout_of_overtaken() const {
  if (least_ == Microseconds{0}) return kFirstTimeout;
  return std::clamp(rounded(smoothed_ + 4 * variation_), kLeastOfOvertaken, kMostTimeout);
}

CongestionWindow::CongestionWindow(std::size_t most, std::size_t first)
    : most_(std::max(static_cast<double>(most), kLeastWindow)),
      first_(std::min(static_cast<double>(first), most_)),
      least_size_(std::min(kLeastWindow, first_)),
      size_(first_),
      slow_start_below_(most_) {}

void CongestionWindow::on_sample(Microseconds sample, Microseconds now) {
  least_.add(sample, now);
  current_ = std::min(current_, sample);
}

void CongestionWindow::on_result(Microseconds now) {
  if (--round_left_ <= 0) end_round();
  measure_rate(now);
  size_ = std::min(most_, size_ + growth());
  repeats_ = std::min(repeats_ + kRepeats, size());
}

double CongestionWindow::growth() const {
  if (size_ < slow_start_below_) return 1;
  if (!is_congested()) return kGrowth / size_;
  return has_its_share() ? 0 : kCongestedGrowth / size_;
}

void CongestionWindow::end_round() {
  round_left_ = size_;
  recent_ = std::exchange(current_, kNone);
}

void CongestionWindow::measure_rate(Microseconds now) {
  ++results_;
  const Microseconds lasted = now - began_;
  if (lasted < kRateStretch) return;
  rate_ = results_ / static_cast<double>(lasted.count());
  best_rate_.add(rate_, now);
  began_ = now;
  results_ = 0;
}

void CongestionWindow::on_loss(Microseconds sent, Microseconds now) {
  before_silence_.reset();
  if (sent < shrunk_) return;
  shrunk_ = now;
  size_ = std::max(least_size_, size_ * (is_congested() ? kCongestedShrinking : kShrinking));
  slow_start_below_ = size_;
}

void CongestionWindow::on_silence(Microseconds now) {
  if (!before_silence_) before_silence_ = {size_, slow_start_below_, shrunk_};
  shrunk_ = now;
  slow_start_below_ = std::max(least_size_, before_silence_->size * kSilentShrinking);
  size_ = least_size_;
  repeats_ = 0;
}

void CongestionWindow::restore() {
  if (!before_silence_) return;
  const Bounds before = *std::exchange(before_silence_, {});
  size_ = before.size;
  slow_start_below_ = before.slow_start_below;
  shrunk_ = before.shrunk;
}

void CongestionWindow::restart() {
  slow_start_below_ = std::max(slow_start_below_, kKept * size_);
  size_ = std::min(size_, first_);
}

void Overtaking::on_result(std::uint64_t number) {
  for (std::uint64_t& later : latest_) {
    if (number > later) std::swap(number, later);
  }
}

}  // namespace sparsewire::proto
