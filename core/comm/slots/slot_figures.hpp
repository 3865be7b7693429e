// Figures of a communicator's datagrams, for all aggregators together. Its lane writes them, and
// any thread reads them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace sparsewire::comm {

enum class SlotFigure : std::uint8_t {
  datagrams_sent = 0,
  datagrams_received,
  datagram_bytes_sent,
  datagram_bytes_received,
  datagrams_rejected,  // not sealed, of another job, or without sense
  datagrams_dropped,   // on their way out, for want of room on this host
  datagrams_overrun,   // on their way in, because the receive buffer was full
  datagram_errors,     // that the system reported of the sockets
  retransmissions,
  timeouts,
  duplicates,
  stale,
  rtt_us,  // smoothed; of the slowest path
  window,  // datagrams; of the narrowest path
};
inline constexpr std::size_t kSlotFigureCount = 14;

constexpr std::string_view name_of(SlotFigure figure) {
  constexpr std::string_view names[kSlotFigureCount] = {"datagrams_sent",
                                                        "datagrams_received",
                                                        "datagram_bytes_sent",
                                                        "datagram_bytes_received",
                                                        "datagrams_rejected",
                                                        "datagrams_dropped",
                                                        "datagrams_overrun",
                                                        "datagram_errors",
                                                        "retransmissions",
                                                        "timeouts",
                                                        "duplicates",
                                                        "stale",
                                                        "rtt_us",
                                                        "window"};
  return names[static_cast<std::size_t>(figure)];
}

class SlotFigures {
 public:
  void set(SlotFigure figure, std::uint64_t value) {
    values_[static_cast<std::size_t>(figure)].store(value, std::memory_order_relaxed);
  }
  std::uint64_t get(SlotFigure figure) const {
    return values_[static_cast<std::size_t>(figure)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kSlotFigureCount> values_{};
};

}  // namespace sparsewire::comm
