// The memory of a dedicated aggregator: what a job may come to need is set aside before it begins,
// so that no job can take what another one was promised.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/error.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::comm {

struct AggregatorLimits {
  std::size_t memory = std::size_t{2} << 30;      // bytes that all jobs together may need
  std::size_t job_memory = std::size_t{1} << 30;  // and one job
  std::uint32_t window = 1u << 20;                // bytes that a worker may have in flight
  // How long a channel may stay without a hello. Ranks have up to 300 s to find each other, and
  // say nothing before they have.
  std::chrono::milliseconds grace{330'000};
};

class Budget {
 public:
  explicit Budget(const AggregatorLimits& limits) : limits_(limits) {}

  // Sets aside what one more lane may need, of a job that has `reserved` bytes already.
  Status reserve(const wire::Topology& topology, std::size_t& reserved);
  void give_back(std::size_t& reserved);

  std::size_t reserved() const { return reserved_; }
  const AggregatorLimits& limits() const { return limits_; }

 private:
  const AggregatorLimits limits_;
  std::size_t reserved_ = 0;  // bytes, by all jobs
};

std::string megabytes(std::size_t bytes);

}  // namespace sparsewire::comm
