// Searches and checks indices.
#include "proto/sparse/sparse_tensor.hpp"

#include <algorithm>
#include <cmath>

#include "wire/agreement.hpp"

namespace sparsewire::proto {
namespace {

Error input_error(std::string message) { return {ErrorCode::input, kNoRank, std::move(message)}; }

// One pass that can be vectorised. A second pass finds the wrong index, if there is one.
template <typename Index>
bool ascends(const Index* indices, std::uint64_t count) {
  bool ok = true;
  for (std::uint64_t i = 1; i < count; ++i) ok &= indices[i - 1] < indices[i];
  return ok;
}

template <typename Index>
Error disorder_error(const Index* indices, std::uint64_t count) {
  const Index* const at = std::adjacent_find(indices, indices + count, std::greater_equal{});
  return input_error("indices must ascend, each only once, but " + std::to_string(at[0]) +
                     " is followed by " + std::to_string(at[1]) + " at position " +
                     std::to_string(at - indices + 1));
}

template <typename Index>
Status check_indices(const Index* indices, std::uint64_t count, std::uint64_t positions) {
  if (count == 0) return {};
  if (!ascends(indices, count)) return disorder_error(indices, count);
  const auto in_range = [&](Index index) {
    return index >= 0 && static_cast<std::uint64_t>(index) < positions;
  };
  for (const Index index : {indices[0], indices[count - 1]}) {
    if (in_range(index)) continue;
    return input_error("index " + std::to_string(index) + " is out of range for length " +
                       std::to_string(positions));
  }
  return {};
}

Status check_finite(const SparseTensor& tensor) {
  const wire::Descriptor& descriptor = tensor.descriptor;
  if (!descriptor.is_stochastic()) return {};
  const auto* const values = reinterpret_cast<const float*>(tensor.values);
  const std::uint64_t count = tensor.named * descriptor.row;
  const auto* const at =
      std::find_if_not(values, values + count, [](float value) { return std::isfinite(value); });
  if (at == values + count) return {};
  return input_error("values[" + std::to_string(at - values) + "] is " + std::to_string(*at) +
                     ", which has no place in quantised numbers: send it without precision=");
}

}  // namespace

std::uint64_t lower_bound(const SparseTensor& tensor, std::uint64_t from, std::uint64_t bound) {
  return with_indices(tensor, [&](const auto* indices) {
    const auto* const end = indices + tensor.named;
    const auto* const at = std::lower_bound(
        indices + from, end, bound + tensor.base,
        [](auto index, std::uint64_t limit) { return static_cast<std::uint64_t>(index) < limit; });
    return static_cast<std::uint64_t>(at - indices);
  });
}

std::uint64_t crowded(const SparseTensor& tensor) {
  std::uint64_t most = 0;
  std::uint64_t first = 0;
  constexpr std::uint64_t parts = wire::kCrowdStretches;
  for (std::uint64_t part = 1; part <= parts; ++part) {
    const std::uint64_t end =
        part == parts ? tensor.positions() : tensor.positions() / parts * part;
    const std::uint64_t behind = lower_bound(tensor, first, end);
    most = std::max(most, behind - first);
    first = behind;
  }
  return most;
}

Status check(const SparseTensor& tensor) {
  Status error = with_indices(tensor, [&](const auto* indices) {
    return check_indices(indices, tensor.named, tensor.positions());
  });
  return error ? error : check_finite(tensor);
}

}  // namespace sparsewire::proto
