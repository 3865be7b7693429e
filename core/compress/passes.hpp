// Passes over large vectors that outer optimizers make: each reads and writes its vectors once, and
// measures what it writes.
#pragma once

#include <cstddef>

namespace sparsewire {

// The l2 norms of a difference, and of what was written.
struct Sizes {
  double moved;
  double turned;
};

// out = start - now + beta * added, or without the last term if `added` is null.
Sizes subtract_and_measure(const float* start, const float* now, const float* added, float beta,
                           float* out, std::size_t count);

// Multiplies the values; returns the l2 norm of the products, which is infinite or NaN if one is.
double scale_and_measure(float* values, float factor, std::size_t count);

}  // namespace sparsewire
