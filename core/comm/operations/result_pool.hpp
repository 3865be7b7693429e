// Memory for large sparse results, used again once their holders let go of it: fresh pages cost as
// much as writing the results to them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace sparsewire::comm {

class ResultPool {
 public:
  // The pool of this process. It is never destroyed: results may outlive all else.
  static ResultPool& shared();

  explicit ResultPool(std::size_t most_kept) : most_kept_(most_kept) {}
  ResultPool(const ResultPool&) = delete;
  ~ResultPool();

  // Memory of `size` bytes or more, until the last holder lets go. It must not outlive the pool.
  // Small pieces come from the allocator.
  std::shared_ptr<std::byte[]> allocate(std::size_t size);

  // Bytes that are kept for later and have no holder.
  std::size_t kept() const;

 private:
  // Mapped pages, and the beginning of the first huge page in them.
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
  // Only tried, never waited for: a forked child may find it locked for ever.
  mutable std::mutex mutex_;
  std::multimap<std::size_t, Block> free_;  // by size
  std::size_t kept_ = 0;
};

}  // namespace sparsewire::comm
