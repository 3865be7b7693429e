// A model of a TCP sender that always has something to send: Reno (RFC 5681) or CUBIC (RFC 9438),
// with selective acknowledgements. Its acknowledgements are never lost.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>

#include "random.hpp"
#include "virtual_time.hpp"

namespace sparsewire::test {

class TcpFlow {
 public:
  enum class Control { reno, cubic };

  TcpFlow(VirtualTime& time, Link& link, Control control, std::size_t segment_bytes,
          std::uint64_t seed)
      : random_(seed), time_(time), link_(link), control_(control), segment_bytes_(segment_bytes) {}

  void start() { send(); }

  std::uint64_t delivered() const { return delivered_; }  // segments

 private:
  static constexpr Nanoseconds kWayBack = std::chrono::microseconds{50};
  static constexpr Nanoseconds kTimeout = std::chrono::milliseconds{200};  // Linux's least
  static constexpr std::uint64_t kDuplicates = 3;

  double shrinking() const { return control_ == Control::reno ? 0.5 : 0.7; }

  void send() {
    while (static_cast<double>(in_flight_.size()) < window_) {
      const std::uint64_t number = ++sent_;
      in_flight_[number] = time_.now();
      if (const auto arrival = link_.send(segment_bytes_, time_.now())) {
        time_.at(*arrival + kWayBack + Nanoseconds{below(20'000, random_)},
                 [this, number] { on_acknowledgement(number); });
      }
    }
    const std::uint64_t last = sent_;
    time_.at(time_.now() + kTimeout, [this, last] { on_timer(last); });
  }

  void on_acknowledgement(std::uint64_t number) {
    const auto at = in_flight_.find(number);
    if (at != in_flight_.end()) {
      round_trip_ = time_.now() - at->second;
      in_flight_.erase(at);
      grow();
    }
    ++delivered_;
    latest_ = std::max(latest_, number);
    bool is_lost = false;
    while (!in_flight_.empty() && in_flight_.begin()->first + kDuplicates <= latest_) {
      is_lost |= in_flight_.begin()->first > recovered_at_;
      in_flight_.erase(in_flight_.begin());
    }
    if (is_lost) shrink();
    send();
  }

  void shrink() {
    recovered_at_ = sent_;
    before_loss_ = window_;
    window_ = std::max(2.0, window_ * shrinking());
    threshold_ = window_;
    lost_at_ = time_.now();
    friendly_ = window_;
  }

  void on_timer(std::uint64_t last) {
    if (in_flight_.empty() || sent_ != last) return;
    in_flight_.clear();
    threshold_ = std::max(2.0, window_ / 2);
    window_ = 1;
    send();
  }

  void grow() {
    if (window_ < threshold_) {
      window_ += 1;
    } else if (control_ == Control::reno) {
      window_ += 1 / window_;
    } else {
      grow_cubic();
    }
  }

  void grow_cubic() {
    constexpr double kC = 0.4, kBeta = 0.7;
    const double since =
        std::chrono::duration<double>(time_.now() + round_trip_ - lost_at_).count();
    const double k = std::cbrt(before_loss_ * (1 - kBeta) / kC);
    const double target = kC * std::pow(since - k, 3) + before_loss_;
    friendly_ += (friendly_ < before_loss_ ? 3 * (1 - kBeta) / (1 + kBeta) : 1.0) / window_;
    window_ += std::clamp((target - window_) / window_, 0.0, 0.5);
    window_ = std::max(window_, friendly_);
  }

  Random random_;
  VirtualTime& time_;
  Link& link_;
  Control control_;
  std::size_t segment_bytes_;
  std::map<std::uint64_t, Nanoseconds> in_flight_;
  std::uint64_t sent_ = 0;
  std::uint64_t latest_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t recovered_at_ = 0;
  double window_ = 10;
  double threshold_ = 1e9;
  double before_loss_ = 0;
  double friendly_ = 0;
  Nanoseconds lost_at_{0};
  Nanoseconds round_trip_{0};
};

}  // namespace sparsewire::test
