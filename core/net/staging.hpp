// Memory to read into, lent to the connections of one thread only while they have something half
// read, so that idle connections cost nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace sparsewire::net {

inline constexpr std::size_t kMinStagingBytes = std::size_t{16} * 1024;
inline constexpr std::size_t kMaxStagingBytes = std::size_t{64} * 1024;

class Staging {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  explicit Staging(std::size_t bytes = kMaxStagingBytes) : bytes_(bytes) { free_.reserve(kKept); }

  std::size_t bytes() const { return bytes_; }  // of a buffer

  Buffer lend() {
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(bytes_);
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void take_back(Buffer buffer) noexcept {
    if (free_.size() < kKept) free_.push_back(std::move(buffer));
  }

 private:
  static constexpr std::size_t kKept = 4;

  const std::size_t bytes_;
  std::vector<Buffer> free_;
};

}  // namespace sparsewire::net
