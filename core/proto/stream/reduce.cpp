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

class Accumulator {
 public:
  Accumulator(std::byte* memory, const Reduction& reduction, const BlockLayout& layout,
              const wire::BlockBitmap& all)
      : memory_(memory), reduction_(reduction), layout_(layout), all_(all) {}

  void add_all(std::span<const Contribution> contributions) {
    const Contribution& first = contributions.front();
    if (first.values.bitmap == all_) {
      kernels().start(memory_, first.values.values.data(), elements_in(all_, layout_),
                      reduction_.dtype, reduction_.op);
      contributions = contributions.subspan(1);
    } else {
      std::memset(memory_, 0, elements_in(all_, layout_) * accumulator_size());
    }
    for (const Contribution& contribution : contributions) add(contribution);
  }

 private:
  void add(const Contribution& contribution) {
    const std::byte* values = contribution.values.values.data();
    for_each_packed_run(contribution.values.bitmap, all_, layout_,
                        [&](std::size_t at, std::size_t from, std::size_t count) {
                          kernels().add(memory_ + at * accumulator_size(),
                                        values + from * layout_.element_size, count,
                                        reduction_.dtype, reduction_.op);
                        });
  }

  std::size_t accumulator_size() const { return element_size(accumulator_of(reduction_.dtype)); }

  std::byte* memory_;
  const Reduction& reduction_;
  const BlockLayout& layout_;
  const wire::BlockBitmap& all_;
};

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

  Accumulator(memory, reduction, layout, all).add_all(contributions);
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
