// Stripes: how a sparse vector is dealt out over the columns of its grid, block by block, so that
// no owner is hot if the indices cluster.
#pragma once

#include "proto/stream/plan.hpp"

namespace sparsewire::proto {

// A stripe is one block. Of every `columns` neighbours each column gets one, so that a power law is
// dealt evenly. The order is mixed, so that no regular stride hits one column alone.
class Stripes {
 public:
  explicit Stripes(const ChunkGrid& grid) : columns_(grid.columns) {}

  // How far a group is turned: its first stripe belongs to this column, the next to the next
  // column.
  std::uint64_t turn(std::uint64_t group) const {
    // Fibonacci hashing mixes the high bits well; the product brings them into range.
    const std::uint64_t mixed = group * 0x9E3779B97F4A7C15u >> 32;
    return mixed * columns_ >> 32;
  }

  std::uint64_t group(std::uint64_t stripe) const {
    return columns_ == 1 ? stripe : stripe / columns_;
  }
  std::uint64_t column(std::uint64_t stripe, std::uint64_t group) const {
    return wrapped(stripe - group * columns_ + turn(group));
  }

  // The stripe of a group that a column got.
  std::uint64_t stripe(std::uint64_t group, std::uint64_t column) const {
    return group * columns_ + wrapped(column + columns_ - turn(group));
  }

  std::uint64_t wrapped(std::uint64_t column) const {
    return column < columns_ ? column : column - columns_;
  }

 private:
  std::uint64_t columns_;
};

}  // namespace sparsewire::proto
