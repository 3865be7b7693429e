// Adds up the ranks' contributions to one chunk, in rank order, so that the same input gives the
// same bits in every run. The result holds the union of the elements that they named, and nothing
// else.
#pragma once

#include <cstring>
#include <memory>
#include <span>

#include "base/types.hpp"
#include "proto/stream/by_element.hpp"
#include "proto/stream/contribution.hpp"
#include "wire/agreement.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {

// Memory for the accumulators of one chunk, kept from one reduction to the next.
class Scratch {
 public:
  // Zeros, enough for any chunk. A user must make them zeros again: clearing the touched elements
  // is less work than clearing a whole chunk each time.
  std::byte* zeros() {
    if (!memory_) {
      memory_ = Bytes::allocate(kBytes);
      std::memset(memory_.get(), 0, kBytes);
    }
    return memory_.get();
  }

 private:
  static constexpr std::size_t kBytes = wire::kMaxChunkElements * 8;
  std::shared_ptr<std::byte[]> memory_;
};

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
// contribution from every rank.
Segment reduce(std::span<const Contribution> contributions, const Reduction& reduction,
               const BlockLayout& layout, Scratch& scratch);

}  // namespace sparsewire::proto
