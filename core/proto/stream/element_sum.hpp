// Adds contributions into a dense accumulator of one chunk, notes which elements were named, and
// packs these in the format that suits the union.
#pragma once

#include "base/bitmap.hpp"
#include "proto/stream/reduce.hpp"

namespace sparsewire::proto {

class ElementSum {
 public:
  ElementSum(const Reduction& reduction, const BlockLayout& layout, Scratch& scratch);

  void add(const wire::SegmentView& segment);

  // Once, at the end; leaves the scratch memory as it was found.
  Segment pack();

 private:
  void add_coordinates(const wire::SegmentView& segment);
  void note(const wire::ElementBitmap& elements);
  void add_blocks(const wire::SegmentView& segment);
  wire::BlockBitmap named_blocks() const;
  Segment pack_cheapest() const;
  Segment pack_sparse(std::size_t count) const;
  Segment pack_elements(wire::Format format, std::size_t count) const;
  Segment pack_blocks(const wire::BlockBitmap& blocks) const;
  void finish(std::byte* out, const std::byte* packed, std::size_t count) const;
  void clear();
  std::size_t words() const { return bitmap_words(layout_.count); }

  const Reduction& reduction_;
  const BlockLayout& layout_;
  const DType accumulator_;
  const std::size_t size_;  // bytes of an accumulator
  std::byte* memory_;
  wire::ElementBitmap named_{};
};

}  // namespace sparsewire::proto
