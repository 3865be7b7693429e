// Top-k sparsification with error feedback: of every bucket of a vector the elements of largest
// magnitude are kept, written as a record, and all that is not sent stays in a residual.
#pragma once

#include <cstddef>

namespace sparsewire {

// A record has a fixed size: one byte for the step, unless values stay as they are, then k
// positions in the bucket, then k values, packed from the low bits of each byte up. It is all zeros
// where nothing is kept.
//
// Quantised values are levels times a step, where the step is the power of two, stored as the
// exponent of a float32, that just holds the largest value. Rounding is to nearest. So a value that
// is sent is zero or within a factor of two of what it stands for, and what remains is exact
// (Sterbenz).
struct TopK {
  static constexpr std::size_t kMaxBucket = std::size_t{1} << 16;

  std::size_t bucket;  // elements that share a record, up to kMaxBucket
  std::size_t k;       // elements to keep of each bucket, from 1 to `bucket`
  unsigned bits;       // of a value: 32 as it is, or 8, 4 or 2 for a level

  std::size_t record_bytes() const;

  // Bytes of the records of `count` elements.
  std::size_t bytes(std::size_t count) const;

  // Adds the gradient to the residual, writes what is kept of the sum to `records` and takes it out
  // of the residual again. What is not finite is sent, as NaN where quantised, and does not remain
  // as far as it is among the kept ones.
  void compress(const float* gradient, float* residual, std::size_t count,
                std::byte* records) const;

  // The mean over what `ranks` ranks wrote for the same vector, added up in the order of the ranks.
  // Their records are `stride` bytes apart.
  void mean(const std::byte* records, std::size_t stride, std::size_t ranks, std::size_t count,
            float* out) const;
};

}  // namespace sparsewire
