// What a lane has sent and received, for statistics.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/frame.hpp"

namespace sparsewire::comm {

// Complete for an operation before its end is told. Bytes are those of the frames of collectives,
// with their headers: what the lane has given to its connections, and what it has taken in.
struct LaneCounters {
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> bytes_received{0};
  std::atomic<std::uint64_t> segments_sent{0};
  std::atomic<std::uint64_t> results_received{0};
  std::atomic<std::uint64_t> chunks_empty{0};

  void count_sent(const wire::FrameHeader& header) { count(bytes_sent, header); }
  void count_received(const wire::FrameHeader& header) { count(bytes_received, header); }

  // Only the lane's own thread counts, so this need not be one step.
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t count) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }

 private:
  // Greetings, last words and signs of life are no part of what a caller asked for.
  static void count(std::atomic<std::uint64_t>& bytes, const wire::FrameHeader& header) {
    if (wire::is_control(header.kind) || header.kind == wire::FrameKind::hello) return;
    add(bytes, wire::kHeaderBytes + header.payload);
  }
};

}  // namespace sparsewire::comm
