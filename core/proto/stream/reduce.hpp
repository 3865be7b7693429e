// Adds up what the ranks contributed to one chunk, in rank order, so that the same input gives the
// same bits in every run. The result holds the union of what they named and nothing else.
#pragma once

#include <span>

#include "base/types.hpp"
#include "proto/stream/by_element.hpp"
#include "proto/stream/contribution.hpp"
#include "proto/stream/scratch.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

struct Reduction {
  DType dtype;
  ReduceOp op;
  std::int32_t world_size;
  wire::ResultForm form = wire::ResultForm::cheapest;
  Costs costs = {};
};

// acc + x, but of two NaN the first stays: the compiler may swap the operands of a sum.
template <typename A>
constexpr A first_nan_or_sum(A acc, A x) {
  const A sum = static_cast<A>(acc + x);
  return acc != acc ? acc : sum;
}

// `contributions` is not empty and sorted by rank; operations that do not skip zeros need a dense
// one from every rank.
Segment reduce(std::span<const Contribution> contributions, const Reduction& reduction,
               const BlockLayout& layout, Scratch& scratch);

}  // namespace sparsewire::proto
