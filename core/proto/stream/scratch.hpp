// Memory for the accumulators of one chunk, kept from one reduction to the next.
#pragma once

#include <cstring>
#include <memory>

#include "base/bytes.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {

class Scratch {
 public:
  // Zeros, enough for any chunk; whoever writes there makes them zeros again. To clear what was
  // touched is less work than to clear a whole chunk each time.
  std::byte* zeros() {
    if (!memory_) {
      memory_ = Bytes::allocate(kBytes);
      std::memset(memory_.get(), 0, kBytes);
    }
    return memory_.get();
  }

 private:
  static constexpr std::size_t kBytes = wire::kMaxChunkElements * 8;
  std::shared_ptr<std::byte[]> memory_;
};

}  // namespace sparsewire::proto
