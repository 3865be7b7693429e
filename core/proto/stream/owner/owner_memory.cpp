// The memory of an owner: now, and at most if all ranks keep to their windows.
#include "proto/stream/owner/owner.hpp"

namespace sparsewire::proto {
namespace {

constexpr std::size_t kNodeBytes = 64;  // of a map, beside the content

// Beside the payload, in a vector that has grown by doubling.
constexpr std::size_t kMemoryPerContribution = 2 * sizeof(Contribution) + kNodeBytes;

// The most memory for a byte of the window: values of two bits become float32. The smallest
// segments take no more, nor do opens if a rank has few.
constexpr std::size_t kMemoryPerWindowByte = 17;
static_assert(kMemoryPerContribution / kSegmentCostMin < kMemoryPerWindowByte);

// Results that are made at once, scratch memory, and results on their way out.
constexpr std::size_t kMemoryOfResults = 8u << 20;

}  // namespace

std::size_t Owner::memory_of_operations(std::size_t count, std::size_t world_size) {
  constexpr std::size_t per_rank = sizeof(std::uint8_t) + sizeof(std::uint64_t);
  return count * (sizeof(Operation) + kNodeBytes + world_size * per_rank);
}

std::size_t Owner::memory() const {
  return memory_of_operations(operations_.size(), speakers_.size()) + buffered_ +
         contributions_ * kMemoryPerContribution;
}

std::size_t Owner::memory_needed(const wire::Topology& topology) {
  const std::size_t window = topology.window_bytes;
  const std::size_t per_rank =
      kSegmentsInWindow * wire::kMaxPayload + kMemoryPerWindowByte * window;
  // The ranks have about the same operations open.
  const std::size_t operations = 2 * (window / kOpenCost + 1);
  return kMemoryOfResults + topology.world_size * per_rank +
         memory_of_operations(operations, topology.world_size);
}

}  // namespace sparsewire::proto
