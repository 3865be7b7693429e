// What operator new does in the program of those tests that include this: it counts the bytes that
// are held, and refuses on request, as a machine does whose memory is used up.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace sparsewire::test {

class Allocations {
 public:
  static std::size_t held() { return held_; }
  static std::size_t peak() { return peak_; }
  static void forget_peak() { peak_ = held_.load(); }

  // From the next allocation but `skipped` on, `refused` of them fail.
  static void refuse(std::int64_t skipped, std::int64_t refused) {
    first_refused_ = skipped;
    end_refused_ = skipped + refused;
    asked_ = 0;
    is_refusing_ = true;
  }
  static void stop_refusing() { is_refusing_ = false; }
  static std::int64_t asked() { return asked_; }

  // While it lives, the allocations of the thread that made it are not refused.
  struct Spared {
    Spared() { is_spared_ = true; }
    ~Spared() { is_spared_ = false; }
  };

  static void* take(std::size_t size) {
    if (is_refusing_ && !is_spared_) {
      const std::int64_t number = asked_++;
      if (number >= first_refused_ && number < end_refused_) throw std::bad_alloc();
    }
    void* const memory = std::malloc(size == 0 ? 1 : size);
    if (!memory) throw std::bad_alloc();
    const std::size_t now = held_ += ::malloc_usable_size(memory);
    for (std::size_t peak = peak_; now > peak && !peak_.compare_exchange_weak(peak, now);) {
    }
    return memory;
  }
  static void give_back(void* memory) {
    if (memory) held_ -= ::malloc_usable_size(memory);
    std::free(memory);
  }

 private:
  static inline std::atomic<std::size_t> held_{0};
  static inline std::atomic<std::size_t> peak_{0};
  static inline std::atomic<bool> is_refusing_{false};
  static inline std::atomic<std::int64_t> asked_{0};
  static inline std::atomic<std::int64_t> first_refused_{0};
  static inline std::atomic<std::int64_t> end_refused_{0};
  static inline thread_local bool is_spared_ = false;
};

}  // namespace sparsewire::test
