// A bad network on purpose: given shares of the datagrams are lost, doubled, delayed, reordered or
// damaged. A seed makes this repeatable.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "net/udp/address.hpp"

namespace sparsewire::net {

using Microseconds = std::chrono::microseconds;

struct Disturbance {
  double loss = 0;  // shares, of 0 to 1
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  Microseconds delay{0};  // of every datagram
  std::uint64_t seed = 0;

  bool operator==(const Disturbance&) const = default;
};

// From "loss=0.01,duplicate=0.01,reorder=0.01,corrupt=0.001,delay=200us,seed=7", each at most once,
// in any order; delays in us or ms, at most a second. An error (input) names the part of the text
// that is none of these.
Result<Disturbance> parse_disturbance(std::string_view text);

struct DisturbanceCounters {
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
};

// Disturbs the datagrams of one direction. Each takes the same number of draws, so that the fate of
// the n-th follows from the seed alone.
class Disturber {
 public:
  // The bytes may be changed, and are valid during the call.
  using Visit = std::function<void(std::span<std::byte>, const Address&)>;

  struct Parcel {
    Address address;
    std::vector<std::byte> data;
  };

  // The longest extra time of a reordered datagram, or of the second of two.
  static constexpr Microseconds kMostDetour{1000};
  static constexpr std::size_t kMostHeld = 4096;  // datagrams; others beyond them are lost

  enum class Direction : std::uint8_t { out, in };
  Disturber(const Disturbance& disturbance, Direction direction);

  // Hands on the datagram at once, keeps a copy until it is due, or loses it.
  void pass(std::span<std::byte> data, const Address& address, Microseconds now,
            const Visit& visit);
  // Hands on the datagrams that are due.
  void release(Microseconds now, const Visit& visit);
  std::optional<Microseconds> next_due() const;
  const DisturbanceCounters& counters() const { return counters_; }

 private:
  struct Fate {
    bool is_lost, is_doubled, is_reordered, is_corrupt;
    Microseconds detour, detour_of_double;
    std::uint64_t bit;  // to flip
  };

  std::uint64_t draw();
  bool happens(double share);
  Microseconds detour();
  Fate next_fate();
  void count(const Fate& fate);
  void hold(std::span<const std::byte> data, const Address& address, Microseconds due);

  const Disturbance disturbance_;
  std::uint64_t state_;
  std::multimap<Microseconds, Parcel> held_;  // by the time when they are due
  DisturbanceCounters counters_;
};

}  // namespace sparsewire::net
