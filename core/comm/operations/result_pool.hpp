// Memory for large sparse results, used again when their holders let go of it: fresh pages cost as
// much as all that is written to them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace sparsewire::comm {

class ResultPool {
 public:
  // The one of this process. It never ends: results may live longer than anything else.
  static ResultPool& shared();

  explicit ResultPool(std::size_t most_kept) : most_kept_(most_kept) {}
  ResultPool(const ResultPool&) = delete;
  ~ResultPool();

  // Memory of `size` bytes or more that nobody else has, until the last holder lets go. It must not
  // outlive the pool. Small pieces come from the allocator.
  std::shared_ptr<std::byte[]> allocate(std::size_t size);

  // Bytes that nobody holds and that are kept for later.
  std::size_t kept() const;

 private:
  // Pages of our own, and where the first huge page begins in them.
  struct Block {
    void* mapping = nullptr;
    std::size_t mapped = 0;
    std::byte* begin = nullptr;
    std::size_t size = 0;
  };

  static Block map(std::size_t size);
  static void unmap(const Block& block);
  Block take(std::size_t size);
  void give_back(const Block& block);

  const std::size_t most_kept_;
  // Only ever tried, never waited for: a child of a fork may find it locked for ever.
  mutable std::mutex mutex_;
  std::multimap<std::size_t, Block> free_;  // by size
  std::size_t kept_ = 0;
};

}  // namespace sparsewire::comm
