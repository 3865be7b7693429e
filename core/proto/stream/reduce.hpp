// Adds up what the ranks contributed to one chunk, in rank order, so that the same input gives the
// same bits in every run. The result holds the union of what they named and nothing else.
#pragma once

#include <span>

#include "base/types.hpp"
#include "proto/stream/source.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

struct Contribution {
  Rank rank;
  Bytes payload;  // keeps the values in place
  wire::SegmentView values;
};

struct Reduction {
  DType dtype;
  ReduceOp op;
  std::int32_t world_size;
};

// `contributions` is not empty and sorted by rank; operations that do not skip zeros need a dense
// one from every rank.
Segment reduce(std::span<const Contribution> contributions, const Reduction& reduction,
               const BlockLayout& layout);

}  // namespace sparsewire::proto
