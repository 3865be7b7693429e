// A tensor as its columns of blocks: finds those that are not zero, puts them into datagrams, and
// writes results to their places.
#pragma once

#include <cstdint>

#include "proto/slots/fixed_point.hpp"
#include "proto/slots/pool.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {

class Columns {
 public:
  Columns(const SlotPool& pool, const SlotTensor& tensor);

  const SlotLayout& layout() const { return layout_; }
  DType dtype() const { return tensor_.dtype; }
  bool has_exponents() const { return has_exponents_; }

  // The first block from this one down its column that counts, and its exponent. Zeros on the way
  // are made ready in the output: results may never name them, so they must hold +0.0 already.
  wire::ColumnRecord find(std::uint32_t block) const;

  // Writes a block as datagrams have it, and zeros where the tensor ends before it does. The
  // exponent is the one agreed on.
  void read(std::uint32_t block, std::uint8_t exponent, std::byte* values) const;

  // Takes a block of a result.
  void write(std::uint32_t block, std::uint8_t exponent, const std::byte* values) const;

 private:
  std::uint64_t offset(std::uint32_t block) const;  // elements
  std::size_t length(std::uint32_t block) const;
  bool is_zero(std::uint32_t block) const;

  SlotTensor tensor_;
  SlotLayout layout_;
  FixedPoint fixed_point_;
  std::int32_t ranks_;
  bool scans_;
  bool has_exponents_;
};

}  // namespace sparsewire::proto
