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
constexpr int kLeastTimesBelieved = 8;
constexpr int kSamplesOfStretch = 16;

constexpr double kFirstWindow = 32;
constexpr double kLeastWindow = 4;

// What a round trip adds, and what a loss leaves.
constexpr double kGrowth = 2;
constexpr double kShrinking = 0.8;
constexpr double kCongestedGrowth = 1;
constexpr double kCongestedShrinking = 0.5;

constexpr Microseconds kRateStretch{10'000};

}  // namespace

void RoundTrip::add(Microseconds sample) {
  if (least_ == Microseconds{0}) {
    least_ = std::max(sample, Microseconds{1});
    smoothed_ = least_;
    variation_ = smoothed_ / 2;
    return;
  }
  least_ = std::clamp(sample, Microseconds{1}, least_);
  const Exact exact(std::min(sample, most_believed(sample)));
  variation_ = 0.75 * variation_ + 0.25 * Exact(std::chrono::abs(smoothed_ - exact));
  smoothed_ = 0.875 * smoothed_ + 0.125 * exact;
}

Microseconds RoundTrip::most_believed(Microseconds sample) {
  current_least_ = std::min(current_least_, sample);
  if (--samples_left_ <= 0) {
    recent_least_ = std::exchange(current_least_, Microseconds::max());
    samples_left_ = kSamplesOfStretch;
  }
  return std::max({kMostBelieved, kLeastTimesBelieved * least_, 2 * recent_least_});
}

Microseconds RoundTrip::timeout() const { return std::max(timeout_of_overtaken(), kLeastTimeout); }

Microseconds RoundTrip::timeout_of_overtaken() const {
  if (least_ == Microseconds{0}) return kFirstTimeout;
  return std::clamp(rounded(smoothed_ + 4 * variation_), kLeastOfOvertaken, kMostTimeout);
}

CongestionWindow::CongestionWindow(std::size_t most)
    : most_(std::max(static_cast<double>(most), kLeastWindow)),
      size_(std::min(kFirstWindow, most_)),
      slow_start_below_(most_) {}

void CongestionWindow::on_sample(Microseconds sample) {
  least_ = std::min(least_, sample);
  current_ = std::min(current_, sample);
}

void CongestionWindow::on_result(Microseconds now) {
  if (--round_left_ <= 0) end_round();
  measure_rate(now);
  size_ = std::min(most_, size_ + growth());
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
  best_rate_ = std::max(best_rate_, rate_);
  began_ = now;
  results_ = 0;
}

void CongestionWindow::on_loss(Microseconds sent, Microseconds now) {
  if (sent < shrunk_) return;
  shrunk_ = now;
  size_ = std::max(kLeastWindow, size_ * (is_congested() ? kCongestedShrinking : kShrinking));
  slow_start_below_ = size_;
}

void Overtaking::on_result(std::uint64_t number) {
  for (std::uint64_t& later : latest_) {
    if (number > later) std::swap(number, later);
  }
}

}  // namespace sparsewire::proto
