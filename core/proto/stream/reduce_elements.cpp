// Adds into a dense accumulator of the whole chunk and notes which elements were named; then packs
// these in the format that suits the union.
#include "proto/stream/reduce_elements.hpp"

#include <cstring>

#include "base/bitmap.hpp"
#include "kernels/blocks.hpp"
#include "kernels/gather.hpp"
#include "kernels/kernels.hpp"
#include "proto/stream/by_element.hpp"

namespace sparsewire::proto {
namespace {

class ElementSum {
 public:
  ElementSum(const Reduction& reduction, const BlockLayout& layout)
      : reduction_(reduction),
        layout_(layout),
        size_(element_size(accumulator_of(reduction.dtype))),
        memory_(Bytes::allocate(layout.count * size_)) {
    std::memset(memory_.get(), 0, layout.count * size_);
  }

  void add(const wire::SegmentView& segment) {
    const wire::ElementBitmap elements = wire::elements_of(segment, layout_);
    for (std::size_t word = 0; word < words(); ++word) named_[word] |= elements[word];
    if (wire::is_by_element(segment.format)) {
      kernels().add_at(memory_.get(), segment.values.data(), words(), elements.data(),
                       reduction_.dtype);
    } else {
      add_blocks(segment);
    }
  }

  Segment pack() {
    const std::size_t count = count_set(named_.data(), layout_.count);
    const wire::BlockBitmap blocks = named_blocks();
    const std::size_t bytes = wire::packed_bytes(blocks, layout_);
    if (const auto format = format_by_element(layout_, count, bytes)) {
      return pack_elements(*format, count);
    }
    return pack_blocks(blocks, bytes);
  }

 private:
  void add_blocks(const wire::SegmentView& segment) {
    const std::byte* values = segment.values.data();
    for_each_run(
        segment.bitmap.data(), layout_.blocks(), [&](std::size_t first, std::size_t length) {
          const std::size_t begin = first * layout_.block;
          const std::size_t count = std::min(length * layout_.block, layout_.count - begin);
          kernels().add(memory_.get() + begin * size_, values, count, reduction_.dtype,
                        reduction_.op);
          values += count * layout_.element_size;
        });
  }

  wire::BlockBitmap named_blocks() const {
    wire::BlockBitmap blocks{};
    for (std::size_t block = 0; block < layout_.blocks(); ++block) {
      const std::size_t begin = block * layout_.block;
      const std::size_t end = std::min(begin + layout_.block, layout_.count);
      if (find_bit(named_.data(), begin, end, true) < end) set_range(blocks.data(), block, 1);
    }
    return blocks;
  }

  Segment pack_elements(wire::Format format, std::size_t count) const {
    const std::size_t head = wire::positions_bytes(format, layout_, count);
    auto owner = Bytes::allocate(head + count * layout_.element_size);
    wire::encode_positions(format, named_, layout_, owner.get());
    auto packed = Bytes::allocate(count * size_);
    gather(packed.get(), memory_.get(), size_, words(), named_.data());
    finish(owner.get() + head, packed.get(), count);
    return {format, Bytes::shared(std::move(owner), head + count * layout_.element_size)};
  }

  Segment pack_blocks(const wire::BlockBitmap& blocks, std::size_t bytes) const {
    const bool dense = all_set(blocks.data(), layout_.blocks());
    const std::size_t head = dense ? 0 : wire::bitmap_bytes(layout_);
    auto owner = Bytes::allocate(head + bytes);
    if (!dense) wire::encode_bitmap(blocks, layout_, owner.get());
    const std::size_t count = bytes / layout_.element_size;
    auto packed = Bytes::allocate(count * size_);
    sparsewire::pack(packed.get(), memory_.get(), layout_.count, size_, layout_.block,
                     blocks.data());
    finish(owner.get() + head, packed.get(), count);
    return {dense ? wire::Format::dense : wire::Format::blocks,
            Bytes::shared(std::move(owner), head + bytes)};
  }

  void finish(std::byte* out, const std::byte* packed, std::size_t count) const {
    kernels().finish(out, packed, count, reduction_.dtype, reduction_.op, reduction_.world_size);
  }

  std::size_t words() const { return bitmap_words(layout_.count); }

  const Reduction& reduction_;
  const BlockLayout& layout_;
  const std::size_t size_;  // bytes of an accumulator
  std::shared_ptr<std::byte[]> memory_;
  wire::ElementBitmap named_{};
};

}  // namespace

Segment reduce_elements(std::span<const Contribution> contributions, const Reduction& reduction,
                        const BlockLayout& layout) {
  ElementSum sum(reduction, layout);
  for (const Contribution& contribution : contributions) sum.add(contribution.values);
  return sum.pack();
}

}  // namespace sparsewire::proto
