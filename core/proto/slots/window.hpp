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
  // Of a contribution that was sent once, until its result came. Where another worker's was lost,
  // it holds the time until somebody's timer ran out, so that timeouts would grow with what they
  // delay themselves: more than 10 ms, or 2 ms where others were last, and 8 times the least round
  // trip, are not believed, unless all take so long. Then a queue stands.
  void add(Microseconds sample, bool was_last);

  // How long to wait for a result: within 2 ms and 1 s, and 100 ms as long as nothing is known.
  Microseconds timeout() const;

  // The same where later results have come already, so that others are not just slow: from 1 ms on.
  Microseconds timeout_of_overtaken() const;

  Microseconds smoothed() const { return rounded(smoothed_); }
  Microseconds variation() const { return rounded(variation_); }

 private:
  using Exact = std::chrono::duration<double, std::micro>;
  static Microseconds rounded(Exact time) { return std::chrono::round<Microseconds>(time); }

  Microseconds most_believed(Microseconds sample, bool was_last);

  Microseconds least_{0};  // zero: no sample yet
  // The least of a stretch of samples, and of the one before.
  Microseconds current_least_ = Microseconds::max();
  Microseconds recent_least_{0};
  int samples_left_ = 0;  // of the stretch
  Exact smoothed_{0};
  Exact variation_{0};
};

// The best value of the last while: paths change. Within one stretch of time, and the one before.
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

// As TCP Veno does (Fu, Liew, JSAC 2003), it tells losses at random from those of a queue that is
// full, by the round trip. As long as no long queue stands, it grows by 2 a round trip, and a loss
// takes a fifth of it. Where one stands, it grows as Reno does, but only while results come at less
// than half of their best rate, and a loss takes 3 of 5: somebody else may be there, whose packets
// the queue drops more often, as they come in bursts or are longer.
class CongestionWindow {
 public:
  // Of at most so many datagrams, and so many at first.
  CongestionWindow(std::size_t most, std::size_t first);

  bool has_room(std::size_t in_flight) const { return in_flight < size(); }
  // What is lost is repeated before anything else is sent, and may pass by what is in flight: twice
  // for each result, as in slow start, and a window at most.
  bool may_repeat(std::size_t in_flight) const { return has_room(in_flight) || repeats_ != 0; }
  void on_repeat() { repeats_ -= repeats_ != 0; }
  std::size_t size() const { return static_cast<std::size_t>(size_); }

  // The round trip of a contribution that was sent once.
  void on_sample(Microseconds sample, Microseconds now);

  void on_result(Microseconds now);

  // A contribution of which this is the first sending, or its result, is lost. All that was on its
  // way when the window shrank counts as one loss.
  void on_loss(Microseconds sent, Microseconds now);

  // Nothing comes back any more: it begins anew, and doubles up to half of what it was (RFC 5681).
  void on_silence(Microseconds now);
  // Nothing was lost, although nothing came back: what it was before, unless something is lost now.
  void restore();
  // What it took was rightly taken.
  void accept_silence() { before_silence_.reset(); }
  // Nothing was sent for a while: it begins as it did at first, and doubles up to near what it was.
  void restart();

 private:
  // What losses change.
  struct Bounds {
    double size;
    double slow_start_below;
    Microseconds shrunk;  // the last time
  };

  // Whether a queue stands that takes as long as the path, beyond what hosts make of themselves.
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

  // Round trips: the least, in the last window of results, and in this one.
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

// What was sent before three others whose results have come is taken for lost (RFC 5681's three
// duplicate acknowledgements). Contributions are numbered as they are sent, from 1 on.
class Overtaking {
 public:
  void on_result(std::uint64_t number);
  bool has_overtaken(std::uint64_t number) const { return number < latest_.back(); }

 private:
  std::array<std::uint64_t, 3> latest_{};  // in descending order
};

}  // namespace sparsewire::proto
