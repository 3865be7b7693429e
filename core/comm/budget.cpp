// Says what a job needs, and what is in its way.
#include "comm/budget.hpp"

#include <utility>

#include "proto/stream/owner.hpp"

namespace sparsewire::comm {
namespace {

// Of a channel, beside what its rank has in flight: what is being received.
constexpr std::size_t kMemoryPerChannel = 128 * 1024 + wire::kMaxPayload;

Error refused(const std::string& text) {
  return {ErrorCode::resources, kNoRank, "an aggregator refuses the job: " + text};
}

}  // namespace

std::string megabytes(std::size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MiB"; }

Status Budget::reserve(const wire::Topology& topology, std::size_t& reserved) {
  if (topology.window_bytes > limits_.window) {
    return refused("windows of " + std::to_string(topology.window_bytes) +
                   " bytes, and it allows " + std::to_string(limits_.window) +
                   ": set SPARSEWIRE_WINDOW lower, or start it with a larger --max-window");
  }
  const std::size_t need =
      proto::Owner::memory_needed(topology) + topology.world_size * kMemoryPerChannel;
  if (reserved + need > limits_.job_memory) {
    return refused("it may need " + megabytes(reserved + need) + ", and a job may have " +
                   megabytes(limits_.job_memory - 1) +
                   ": start it with a larger --job-memory, or set SPARSEWIRE_WINDOW or "
                   "SPARSEWIRE_LANES lower");
  }
  if (reserved_ + need > limits_.memory) {
    return refused("it may need " + megabytes(reserved + need) + ", and other jobs leave " +
                   megabytes(limits_.memory - reserved_) +
                   ": start it with a larger --memory, or add an aggregator");
  }
  reserved += need;
  reserved_ += need;
  return {};
}

void Budget::give_back(std::size_t& reserved) { reserved_ -= std::exchange(reserved, 0); }

}  // namespace sparsewire::comm
