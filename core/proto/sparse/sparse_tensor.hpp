// A sparse vector in the caller's memory: ascending indices and one value, or one row, for each.
#pragma once

#include "base/error.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

struct SparseTensor {
  const void* indices = nullptr;
  bool is_wide = true;      // int64 indices; otherwise int32
  std::uint64_t named = 0;  // indices
  const std::byte* values = nullptr;
  std::uint64_t base = 0;       // the index that counts as 0, in a slice of a longer vector
  wire::Descriptor descriptor;  // its count is in elements, not in rows

  std::uint64_t positions() const { return descriptor.count / descriptor.row; }
  std::uint64_t row_bytes() const { return descriptor.row * element_size(descriptor.dtype); }
};

// Calls visit(indices) with a pointer of the indices' type.
template <typename Visit>
decltype(auto) with_indices(const SparseTensor& tensor, Visit&& visit) {
  return tensor.is_wide ? visit(static_cast<const std::int64_t*>(tensor.indices))
                        : visit(static_cast<const std::int32_t*>(tensor.indices));
}

// The first place in [from, named) whose index, counted from the base, is not below `bound`.
std::uint64_t lower_bound(const SparseTensor& tensor, std::uint64_t from, std::uint64_t bound);

// Indices in the sixteenth of the positions that holds the most of them.
std::uint64_t crowded(const SparseTensor& tensor);

// Whether the indices ascend, each only once, and stay in range, and whether the values are finite,
// if a codec with a scale will carry them. The error is the caller's: ErrorCode::input.
Status check(const SparseTensor& tensor);

}  // namespace sparsewire::proto
