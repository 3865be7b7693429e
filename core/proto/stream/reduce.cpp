// Reduces contributions of blocks among each other: a run of a rank's blocks is one run among the
// union's packed blocks too.
#include "proto/stream/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"
#include "proto/stream/element_sum.hpp"

namespace sparsewire::proto {
namespace {

wire::BlockBitmap union_of(std::span<const Contribution> contributions) {
  wire::BlockBitmap all{};
  for (const Contribution& contribution : contributions) {
    for (std::size_t word = 0; word < all.size(); ++word) {
      all[word] |= contribution.values.bitmap[word];
    }
  }
  return all;
}

std::size_t elements_in(const wire::BlockBitmap& bitmap, const BlockLayout& layout) {
  return wire::packed_bytes(bitmap, layout) / layout.element_size;
}

// Calls visit(at, from, count), in elements, for every run of the rank's blocks: its place among
// the union's packed blocks, its place among the rank's own, and its length.
template <typename Visit>
void for_each_packed_run(const wire::BlockBitmap& rank, const wire::BlockBitmap& all,
                         const BlockLayout& layout, Visit&& visit) {
  std::size_t from = 0;
  for_each_run(rank.data(), layout.blocks(), [&](std::size_t first, std::size_t length) {
    const std::size_t at = count_set(all.data(), first) * layout.block;
    const std::size_t end = std::min((first + length) * layout.block, layout.count);
    const std::size_t count = end - first * layout.block;
    visit(at, from, count);
    from += count;
  });
}

// Adds all up in `memory`, where the blocks of `all` lie one behind the other.
void add_all(std::span<const Contribution> contributions, const Reduction& reduction,
             const BlockLayout& layout, const wire::BlockBitmap& all, std::byte* memory) {
  const std::size_t size = element_size(accumulator_of(reduction.dtype));
  const std::size_t count = elements_in(all, layout);
  const wire::SegmentView& first = contributions.front().values;
  if (first.bitmap == all) {
    kernels().start(memory, first.values.data(), count, reduction.dtype, reduction.op);
    contributions = contributions.subspan(1);
  } else {
    std::memset(memory, 0, count * size);
  }
  for (const Contribution& contribution : contributions) {
    const wire::SegmentView& view = contribution.values;
    for_each_packed_run(
        view.bitmap, all, layout, [&](std::size_t at, std::size_t from, std::size_t length) {
          kernels().add(memory + at * size, view.values.data() + from * layout.element_size, length,
                        reduction.dtype, reduction.op);
        });
  }
}

Segment reduce_blocks(std::span<const Contribution> contributions, const Reduction& reduction,
                      const BlockLayout& layout) {
  const wire::BlockBitmap all = reduction.form == wire::ResultForm::dense
                                    ? wire::full_bitmap(layout)
                                    : union_of(contributions);
  const bool dense = all_set(all.data(), layout.blocks());
  const std::size_t head = dense ? 0 : wire::bitmap_bytes(layout);
  const std::size_t count = elements_in(all, layout);
  const std::size_t size = head + count * layout.element_size;

  auto owner = Bytes::allocate(size);
  if (!dense) wire::encode_bitmap(all, layout, owner.get());
  std::byte* out = owner.get() + head;

  // Half types are added up in float32, in memory of its own; all others right where they go.
  const DType accumulator_type = accumulator_of(reduction.dtype);
  const bool separate = accumulator_type != reduction.dtype;
  std::shared_ptr<std::byte[]> scratch;
  if (separate) scratch = Bytes::allocate(count * element_size(accumulator_type));
  std::byte* memory = separate ? scratch.get() : out;

  add_all(contributions, reduction, layout, all, memory);
  if (separate || reduction.op == ReduceOp::avg) {
    kernels().finish(out, memory, count, reduction.dtype, reduction.op, reduction.world_size);
  }
  return {dense ? wire::Format::dense : wire::Format::blocks, Codec::raw,
          Bytes::shared(std::move(owner), size)};
}

}  // namespace

Segment reduce(std::span<const Contribution> contributions, const Reduction& reduction,
               const BlockLayout& layout, Scratch& scratch) {
  const bool by_element = std::ranges::any_of(contributions, [](const Contribution& contribution) {
    return wire::is_by_element(contribution.values.format);
  });
  if (!by_element) return reduce_blocks(contributions, reduction, layout);
  ElementSum sum(reduction, layout, scratch);
  for (const Contribution& contribution : contributions) sum.add(contribution.values);
  return sum.pack();
}

}  // namespace sparsewire::proto
