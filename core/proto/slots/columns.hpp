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

  // The first block from this one down its column that counts, and its exponent. Zeros on the way
  // are made ready in the output: results may never name them, so they must hold +0.0 already.
  wire::ColumnRecord find(std::uint32_t block) const;
  // What follows a block that was asked for, and is here: where it has infinities or NaN on some
  // rank, the block itself once more, with the exponent of its finite values.
  wire::ColumnRecord after(const wire::ColumnRecord& asked) const;

  // Whether a block is asked for once more, behind its marks.
  bool is_again(const wire::ColumnRecord& before, const wire::ColumnRecord& asked) const {
    return has_marks(before) && !has_marks(asked) && asked.next == before.next;
  }

  // Writes a block as datagrams have it, and zeros where the tensor ends before it does. The
  // exponent is the one agreed on.
  void read(const wire::ColumnRecord& asked, std::byte* values) const;

  // Takes a block of a result; `is_marked`: for the second time, and its marks stay.
  void write(const wire::ColumnRecord& asked, const std::byte* values, bool is_marked) const;

 private:
  bool has_marks(const wire::ColumnRecord& asked) const {
    return has_exponents_ && asked.exponent == wire::kNotFinite;
  }
  const std::byte* source(std::uint32_t block) const;
  std::byte* out(std::uint32_t block) const;
  void write_marks(std::uint32_t block, const std::byte* sums) const;
  void write_fixed(const wire::ColumnRecord& asked, const std::byte* sums, bool is_marked) const;
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
