// A tensor as its columns of blocks: finds blocks that are not zero, puts them into datagrams, and
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

  // The first block that counts, from this one down its column, and its exponent. Blocks of zeros
  // on the way become +0.0 in the output at once, because results may never name them.
  wire::ColumnRecord find(std::uint32_t block) const;
  // The block after one that was asked for and is here. If that one has infinities or NaN on some
  // rank, it comes itself once more, with the exponent of its finite values.
  wire::ColumnRecord after(const wire::ColumnRecord& asked) const;

  // Whether a block is asked for once more, after its marks.
  bool is_again(const wire::ColumnRecord& before, const wire::ColumnRecord& asked) const {
    return has_marks(before) && !has_marks(asked) && asked.next == before.next;
  }

  // Writes a block as datagrams have it, filled up with zeros if the tensor ends inside it. The
  // exponent is the one agreed on.
  void read(const wire::ColumnRecord& asked, std::byte* values) const;

  // Takes a block of a result. `is_marked`: it comes for the second time, and its marks stay.
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
