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
  // Of a contribution that was sent once, until its result came.
  void add(Microseconds sample);

  // How long to wait for a result: within 2 ms and 1 s, and 100 ms as long as nothing is known.
  Microseconds timeout() const;

  Microseconds smoothed() const { return rounded(smoothed_); }
  Microseconds variation() const { return rounded(variation_); }

 private:
  using Exact = std::chrono::duration<double, std::micro>;
  static Microseconds rounded(Exact time) { return std::chrono::round<Microseconds>(time); }

  Exact smoothed_{0};  // zero: no sample yet
  Exact variation_{0};
};

class CongestionWindow {
 public:
  // Of at most so many datagrams.
  explicit CongestionWindow(std::size_t most);

  bool has_room(std::size_t in_flight) const { return in_flight < size(); }
  std::size_t size() const { return static_cast<std::size_t>(size_); }

  void on_result();

  // Something was lost. What is lost within one round trip counts once.
  void on_loss(Microseconds now, Microseconds round_trip);

 private:
  double most_;
  double size_;
  double slow_start_below_;
  Microseconds next_loss_ = Microseconds::min();  // none counts before
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
