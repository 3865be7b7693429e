// When a contribution is taken for lost, and how many may be in flight: the round trip as TCP
// measures it (RFC 6298), and a window that grows and shrinks as TCP's do, so that slots share a
// link with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/slots/pool.hpp"

namespace sparsewire::proto {

class RoundTrip {
 public:
  // Of a contribution that was sent once, until its result came. Where another worker's was lost,
  // it holds the time until somebody's timer ran out, so that timeouts would grow with what they
  // delay themselves: more than 10 ms, and 8 times the least round trip, are not believed, unless
  // all take so long. Then a queue stands.
  void add(Microseconds sample);

  // How long to wait for a result: within 2 ms and 1 s, and 100 ms as long as nothing is known.
  Microseconds timeout() const;

  // The same where later results have come already, so that others are not just slow: from 1 ms on.
  Microseconds timeout_of_overtaken() const;

  Microseconds smoothed() const { return rounded(smoothed_); }
  Microseconds variation() const { return rounded(variation_); }

 private:
  using Exact = std::chrono::duration<double, std::micro>;
  static Microseconds rounded(Exact time) { return std::chrono::round<Microseconds>(time); }

  Microseconds most_believed(Microseconds sample);

  Microseconds least_{0};  // zero: no sample yet
  // The least of a stretch of samples, and of the one before.
  Microseconds current_least_ = Microseconds::max();
  Microseconds recent_least_{0};
  int samples_left_ = 0;  // of the stretch
  Exact smoothed_{0};
  Exact variation_{0};
};

// As TCP Veno does (Fu, Liew, JSAC 2003), it tells losses at random from those of a queue that is
// full, by the round trip. As long as no long queue stands, it grows by 2 a round trip, and a loss
// takes a fifth of it. Where one stands, it grows as Reno does, but only while results come at less
// than half of their best rate, and a loss takes half: somebody else may be there, whose packets
// the queue drops more often, as they come in bursts or are longer.
class CongestionWindow {
 public:
  // Of at most so many datagrams.
  explicit CongestionWindow(std::size_t most);

  bool has_room(std::size_t in_flight) const { return in_flight < size(); }
  std::size_t size() const { return static_cast<std::size_t>(size_); }

  // The round trip of a contribution that was sent once.
  void on_sample(Microseconds sample);

  void on_result(Microseconds now);

  // A contribution of which this is the first sending, or its result, is lost. All that was on its
  // way when the window shrank counts as one loss.
  void on_loss(Microseconds sent, Microseconds now);

 private:
  // Whether a queue stands that takes as long as the path, beyond what hosts make of themselves.
  bool is_congested() const { return recent_ > 2 * least_ + kJitter; }
  bool has_its_share() const { return 2 * rate_ >= best_rate_; }
  double growth() const;
  void end_round();
  void measure_rate(Microseconds now);

  static constexpr Microseconds kNone = Microseconds::max() / 4;
  static constexpr Microseconds kJitter{100};

  double most_;
  double size_;
  double slow_start_below_;
  Microseconds shrunk_ = Microseconds::min();  // the last time

  // Round trips: the least so far, in the last window of results, and in this one.
  Microseconds least_ = kNone;
  Microseconds recent_{0};
  Microseconds current_ = kNone;
  double round_left_ = 1;  // results

  // Results per microsecond, in stretches of at least 10 ms.
  Microseconds began_{0};
  double results_ = 0;
  double rate_ = 0;
  double best_rate_ = 0;
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
