// One submitted collective, shared by the caller who waits and the lanes that work on it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "comm/progress_thread.hpp"
#include "wire/descriptor.hpp"

namespace sparsewire::comm {

class Operation {
 public:
  struct Arguments {
    const std::byte* source;
    std::byte* target;
    wire::Descriptor descriptor;
    Clock::time_point deadline = Clock::time_point::max();
  };

  Operation(std::uint64_t seq, const Arguments& arguments, bool leaves_out_zeros)
      : seq_(seq), arguments_(arguments), leaves_out_zeros_(leaves_out_zeros) {}

  std::uint64_t seq() const { return seq_; }
  const Arguments& arguments() const { return arguments_; }
  bool leaves_out_zeros() const { return leaves_out_zeros_; }

  // Blocks until the end, or for so long; true where it has ended.
  bool wait(std::optional<std::chrono::nanoseconds> patience) const;
  bool ended() const;

  // Only after the end.
  Status failure() const;

  // Releases every waiter. Called once.
  void end(Status failure);

 private:
  const std::uint64_t seq_;
  const Arguments arguments_;
  const bool leaves_out_zeros_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ended_ = false;
  Status failure_;
};

}  // namespace sparsewire::comm
