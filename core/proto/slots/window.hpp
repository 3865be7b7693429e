// When a contribution is taken for lost, and how many may be in flight: the round trip as TCP
// measures it (RFC 6298), and a window that grows and shrinks as TCP's do, so that slots share a
// link with it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "proto/slots/pool.hpp"

namespace sparsewire::proto {

class RoundTrip {
 public:
  // Takes the time from a contribution, sent once, to its result. If another worker's contribution
  // was lost, the time includes a timer, and timeouts would grow with the delays that they cause.
  // So a sample counts for at most 10 ms (2 ms if another worker was last), or 8 times the least
  // round trip if that is more, unless all samples are so long: then a queue stands.
  void add(Microseconds sample, bool was_last);

  // How long to wait for a result: 2 ms to 1 s, and 100 ms as long as nothing is known.
  Microseconds timeout() const;

  // The same if later results have come already, so that others are not just slow: 1 ms to 1 s.
  Microseconds timeout_of_overtaken() const;

  Microseconds smoothed() const { return rounded(smoothed_); }
  Microseconds variation() const { return rounded(variation_); }

 private:
  using Exact = std::chrono::duration<double, std::micro>;
  static Microseconds rounded(Exact time) { return std::chrono::round<Microseconds>(time); }

  Microseconds most_believed(Microseconds sample, bool was_last);

  Microseconds least_{0};  // zero: no sample yet
  // The least of a stretch of samples, and of the stretch before.
  Microseconds current_least_ = Microseconds::max();
  Microseconds recent_least_{0};
  int samples_left_ = 0;  // of the stretch
  Exact smoothed_{0};
  Exact variation_{0};
};

// The best value of this stretch of time and of the one before: paths change.
template <typename Value, typename Better>
class Recent {
 public:
  explicit Recent(Value none) : current_(none), before_(none), none_(none) {}

  void add(Value value, Microseconds now) {
    if (now - began_ >= kStretch) {
      before_ = std::exchange(current_, none_);
      began_ = now;
    }
    current_ = std::min(current_, value, Better{});
  }
  Value best() const { return std::min(current_, before_, Better{}); }

 private:
  static constexpr Microseconds kStretch = std::chrono::seconds{30};

  Value current_;
  Value before_;
  Value none_;
  Microseconds began_{0};
};

// As in TCP Veno (Fu, Liew, JSAC 2003), the round trip tells random losses from those of a full
// queue. As long as no long queue stands, the window grows by 2 a round trip, and a loss takes a
// fifth of it. If a long queue stands, the window grows as Reno's does, but only while results come
// at less than half of their best rate, and a loss takes 3 of 5: another sender may be there, whose
// packets the queue drops more often, as they come in bursts or are longer.
class CongestionWindow {
 public:
  // Of `most` datagrams at most, and `first` at first.
  CongestionWindow(std::size_t most, std::size_t first);

  bool has_room(std::size_t in_flight) const { return in_flight < size(); }
  // Lost contributions are repeated before anything else is sent, also if the window is full: two
  // for each result, as in slow start, and a window at most.
  bool may_repeat(std::size_t in_flight) const { return has_room(in_flight) || repeats_ != 0; }
  void on_repeat() { repeats_ -= repeats_ != 0; }
  std::size_t size() const { return static_cast<std::size_t>(size_); }

  // The round trip of a contribution that was sent once.
  void on_sample(Microseconds sample, Microseconds now);

  void on_result(Microseconds now);

  // A contribution that was first sent at `sent`, or its result, is lost. All losses of what was on
  // its way when the window shrank count as one.
  void on_loss(Microseconds sent, Microseconds now);

  // Nothing comes back any more: the window begins anew, and doubles up to half of what it was (RFC
  // 5681).
  void on_silence(Microseconds now);
  // Nothing was lost, although nothing came back: the window is as before, unless a loss came
  // since.
  void restore();
  // The silence has shrunk the window rightly.
  void accept_silence() { before_silence_.reset(); }
  // Nothing was sent for a while: the window begins as it did at first, and doubles up to near what
  // it was.
  void restart();

 private:
  // The values that losses change.
  struct Bounds {
    double size;
    double slow_start_below;
    Microseconds shrunk;  // the last time
  };

  // Whether a queue stands that takes as long as the path, beyond the jitter of hosts.
  bool is_congested() const { return recent_ > 2 * least_.best() + kJitter; }
  bool has_its_share() const { return 2 * rate_ >= best_rate_.best(); }
  double growth() const;
  void end_round();
  void measure_rate(Microseconds now);

  static constexpr Microseconds kNone = Microseconds::max() / 4;
  static constexpr Microseconds kJitter{100};

  std::size_t repeats_ = 0;
  double most_;
  double first_;
  double least_size_;
  double size_;
  double slow_start_below_;
  Microseconds shrunk_ = Microseconds::min();  // the last time
  std::optional<Bounds> before_silence_;

  // The least round trips: of late, in the last window of results, and in this one.
  Recent<Microseconds, std::less<>> least_{kNone};
  Microseconds recent_{0};
  Microseconds current_ = kNone;
  double round_left_ = 1;  // results

  // Results per microsecond, in stretches of at least 10 ms.
  Microseconds began_{0};
  double results_ = 0;
  double rate_ = 0;
  Recent<double, std::greater<>> best_rate_{0};
};

// A contribution that was sent before three others whose results have come is taken for lost (RFC
// 5681's three duplicate acknowledgements). Contributions are numbered as they are sent, from 1 on.
class Overtaking {
 public:
  void on_result(std::uint64_t number);
  bool has_overtaken(std::uint64_t number) const { return number < latest_.back(); }

 private:
  std::array<std::uint64_t, 3> latest_{};  // in descending order
};

}  // namespace sparsewire::proto
