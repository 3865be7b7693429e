// Estimates the round trip, and moves the window.
#include "proto/slots/window.hpp"

#include <algorithm>
#include <utility>

namespace sparsewire::proto {
namespace {

constexpr Microseconds kLeastTimeout{2'000};
constexpr Microseconds kMostTimeout{1'000'000};
constexpr Microseconds kFirstTimeout{100'000};

constexpr double kFirstWindow = 32;
constexpr double kLeastWindow = 4;
constexpr double kShrinking = 0.7;  // CUBIC's (RFC 9438)

}  // namespace

void RoundTrip::add(Microseconds sample) {
  const Exact exact(sample);
  if (smoothed_ == Exact{0}) {
    smoothed_ = exact;
    variation_ = exact / 2;
    return;
  }
  variation_ = 0.75 * variation_ + 0.25 * Exact(std::chrono::abs(smoothed_ - exact));
  smoothed_ = 0.875 * smoothed_ + 0.125 * exact;
}

Microseconds RoundTrip::timeout() const {
  if (smoothed_ == Exact{0}) return kFirstTimeout;
  return std::clamp(rounded(smoothed_ + 4 * variation_), kLeastTimeout, kMostTimeout);
}

CongestionWindow::CongestionWindow(std::size_t most)
    : most_(std::max(static_cast<double>(most), kLeastWindow)),
      size_(std::min(kFirstWindow, most_)),
      slow_start_below_(most_) {}

void CongestionWindow::on_result() {
  size_ = std::min(most_, size_ + (size_ < slow_start_below_ ? 1 : 1 / size_));
}

void CongestionWindow::on_loss(Microseconds now, Microseconds round_trip) {
  if (now < next_loss_) return;
  next_loss_ = now + round_trip;
  size_ = std::max(kLeastWindow, size_ * kShrinking);
  slow_start_below_ = size_;
}

void Overtaking::on_result(std::uint64_t number) {
  for (std::uint64_t& later : latest_) {
    if (number > later) std::swap(number, later);
  }
}

}  // namespace sparsewire::proto
