// The reduction of a chunk to which some rank contributed single elements.
#pragma once

#include "proto/stream/reduce.hpp"

namespace sparsewire::proto {

// For operations that skip zeros. `contributions` is not empty and sorted by rank.
Segment reduce_elements(std::span<const Contribution> contributions, const Reduction& reduction,
                        const BlockLayout& layout);

}  // namespace sparsewire::proto
