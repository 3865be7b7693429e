// Maps pages, keeps some of those that come back, and lets the kernel take them if memory is short.
#include "comm/operations/result_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>

#include "base/bytes.hpp"

namespace sparsewire::comm {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Below this size the allocator keeps memory by itself.
constexpr std::size_t kSmall = std::size_t{1} << 20;

constexpr std::size_t kMostKept = std::size_t{256} << 20;

// Results of one size class may take each other's place: sizes vary a little from call to call.
std::size_t class_of(std::size_t size) {
  const std::size_t step = std::max(kHugePage, std::bit_floor(size) / 8);
  return (size + step - 1) / step * step;
}

}  // namespace

ResultPool& ResultPool::shared() {
  static auto* const pool = new ResultPool(kMostKept);
  return *pool;
}

ResultPool::~ResultPool() {
  for (const auto& [size, block] : free_) unmap(block);
}

std::shared_ptr<std::byte[]> ResultPool::allocate(std::size_t size) {
  if (size < kSmall) return Bytes::allocate(size);
  const Block block = take(class_of(size));
  return {block.begin, [this, block](std::byte*) { give_back(block); }};
}

std::size_t ResultPool::kept() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? kept_ : 0;
}

ResultPool::Block ResultPool::take(std::size_t size) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return map(size);
  const auto at = free_.lower_bound(size);
  // A small result must not hold memory that a large one will need.
  if (at == free_.end() || at->first > 2 * size) return map(size);
  const Block block = at->second;
  free_.erase(at);
  kept_ -= block.size;
  return block;
}

// Kept pages stay in memory, so that they cost no page faults. But if memory is short, the kernel
// may take them.
void ResultPool::give_back(const Block& block) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || block.size > most_kept_) return unmap(block);
  try {
    free_.emplace(block.size, block);
  } catch (const std::bad_alloc&) {
    return unmap(block);
  }
  madvise(block.begin, block.size, MADV_FREE);
  kept_ += block.size;
  while (kept_ > most_kept_) {
    // The smallest block goes: it is the cheapest to make again.
    const auto at = free_.begin();
    kept_ -= at->first;
    unmap(at->second);
    free_.erase(at);
  }
}

ResultPool::Block ResultPool::map(std::size_t size) {
  const std::size_t mapped = size + kHugePage;
  void* const mapping =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::size_t gap = (kHugePage - address % kHugePage) % kHugePage;
  const Block block{mapping, mapped, static_cast<std::byte*>(mapping) + gap, size};
  madvise(block.begin, block.size, MADV_HUGEPAGE);
  return block;
}

void ResultPool::unmap(const Block& block) { munmap(block.mapping, block.mapped); }

}  // namespace sparsewire::comm
