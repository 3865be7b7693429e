// Reduces contributions. If all are of blocks, a run of a rank's blocks is also one run among the
// union's packed blocks. If any has single elements, all go into a dense accumulator.
#include "proto/stream/owner/reduce.hpp"

#include <algorithm>
#include <vector>

#include "kernels/blocks.hpp"
#include "kernels/kernels.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {
namespace {

// Converts `count` sums, which fill(sums) writes in the accumulator's type, to the type that goes
// out. If it is the same type, they are written right to `out`.
template <typename Fill>
void write_sums(std::byte* out, std::size_t count, const Reduction& reduction, Fill&& fill) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const bool is_final = accumulator == reduction.dtype;
  const auto memory = is_final ? nullptr : Bytes::allocate(count * element_size(accumulator));
  std::byte* const sums = is_final ? out : memory.get();
  fill(sums);
  if (is_final && reduction.op != ReduceOp::avg) return;
  kernels().finish(out, sums, count, reduction.dtype, reduction.op, reduction.world_size);
}

// Adds whole blocks, run by run. place(block) gives the place of the run's first block.
template <typename Place>
void add_runs(const wire::SegmentView& view, const Reduction& reduction, const BlockLayout& layout,
              Place&& place) {
  const std::byte* values = view.values.data();
  for_each_run(view.bitmap.data(), layout.blocks(), [&](std::size_t first, std::size_t length) {
    const std::size_t count = std::min(length * layout.block, layout.count - first * layout.block);
    kernels().add(place(first), values, count, reduction.dtype, reduction.op);
    values += count * layout.element_size;
  });
}

// --- By block ---

wire::BlockBitmap union_of(std::span<const Contribution> contributions) {
  wire::BlockBitmap all{};
  for (const Contribution& contribution : contributions) {
    for (std::size_t word = 0; word < all.size(); ++word) {
      all[word] |= contribution.values.bitmap[word];
    }
  }
  return all;
}

// Adds all up in `memory`, which holds the `count` elements of the blocks of `all` one after
// another.
void add_all(std::span<const Contribution> contributions, const Reduction& reduction,
             const BlockLayout& layout, const wire::BlockBitmap& all, std::byte* memory,
             std::size_t count) {
  const std::size_t size = element_size(accumulator_of(reduction.dtype));
  const wire::SegmentView& first = contributions.front().values;
  if (first.bitmap == all) {
    kernels().start(memory, first.values.data(), count, reduction.dtype, reduction.op);
    contributions = contributions.subspan(1);
  } else {
    std::memset(memory, 0, count * size);
  }
  for (const Contribution& contribution : contributions) {
    add_runs(contribution.values, reduction, layout, [&](std::size_t block) {
      return memory + count_set(all.data(), block) * layout.block * size;
    });
  }
}

Segment reduce_blocks(std::span<const Contribution> contributions, const Reduction& reduction,
                      const BlockLayout& layout) {
  const wire::BlockBitmap all = reduction.form == wire::ResultForm::dense
                                    ? wire::full_bitmap(layout)
                                    : union_of(contributions);
  return segment_of_blocks(all, layout, [&](std::byte* out, std::size_t count) {
    write_sums(out, count, reduction, [&](std::byte* sums) {
      add_all(contributions, reduction, layout, all, sums, count);
    });
  });
}

// --- By element ---

// acc[local] += x, which cannot be vectorised; integers wrap around. The same pass sets the bit of
// each local, as set_ascending() does: both mostly wait for memory.
template <typename A>
void add_at_locals(std::byte* memory, const std::byte* locals, const std::byte* values,
                   std::size_t count, std::uint64_t* elements) {
  auto* const acc = reinterpret_cast<A*>(memory);
  std::size_t word = 0;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t local = wire::load<std::uint16_t>(locals + 2 * i);
    A value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    acc[local] = first_nan_or_sum(acc[local], value);
    const std::size_t next = local / 64;
    bits = (next == word ? bits : 0) | std::uint64_t{1} << (local % 64);
    word = next;
    elements[word] = bits;
  }
}

void add_at_locals(std::byte* memory, const std::byte* locals, const std::byte* values,
                   std::size_t count, std::uint64_t* elements, DType accumulator) {
  switch (accumulator) {
    case DType::float64:
      return add_at_locals<double>(memory, locals, values, count, elements);
    case DType::int32:
      return add_at_locals<std::uint32_t>(memory, locals, values, count, elements);
    case DType::int64:
      return add_at_locals<std::uint64_t>(memory, locals, values, count, elements);
    default:
      return add_at_locals<float>(memory, locals, values, count, elements);
  }
}

// Adds into a dense accumulator of one chunk, notes the named elements, and packs them in the
// format that suits the union.
class ElementSum {
 public:
  ElementSum(const Reduction& reduction, const BlockLayout& layout, Scratch& scratch)
      : reduction_(reduction),
        layout_(layout),
        accumulator_(accumulator_of(reduction.dtype)),
        size_(element_size(accumulator_)),
        memory_(scratch.zeros()) {}

  void add(const wire::SegmentView& segment) {
    if (segment.format == wire::Format::coordinates) return add_coordinates(segment);
    const wire::ElementBitmap elements = wire::elements_of(segment, layout_);
    note(elements);
    if (segment.format == wire::Format::bitmap) {
      kernels().add_at(memory_, segment.values.data(), words(), elements.data(), reduction_.dtype);
    } else {
      add_runs(segment, reduction_, layout_,
               [&](std::size_t block) { return memory_ + block * layout_.block * size_; });
    }
  }

  // Called once, at the end. Leaves the scratch memory as it was found.
  Segment pack() {
    Segment segment = reduction_.form == wire::ResultForm::dense
                          ? pack_blocks(wire::full_bitmap(layout_))
                          : pack_cheapest();
    clear();
    return segment;
  }

 private:
  void add_coordinates(const wire::SegmentView& segment) {
    const std::byte* values = segment.values.data();
    std::vector<std::byte> widened;
    if (accumulator_ != reduction_.dtype) {
      widened.resize(segment.count * size_);
      kernels().start(widened.data(), values, segment.count, reduction_.dtype, ReduceOp::sum);
      values = widened.data();
    }
    wire::ElementBitmap elements{};
    add_at_locals(memory_, segment.positions.data(), values, segment.count, elements.data(),
                  accumulator_);
    note(elements);
  }

  void note(const wire::ElementBitmap& elements) {
    for (std::size_t word = 0; word < words(); ++word) named_[word] |= elements[word];
  }

  Segment pack_cheapest() const {
    const std::size_t count = count_set(named_.data(), layout_.count);
    if (reduction_.form == wire::ResultForm::sparse) return pack_sparse(count);
    const wire::BlockBitmap blocks = named_blocks();
    const std::size_t bytes = wire::packed_bytes(blocks, layout_);
    if (const auto format = format_by_element(layout_, count, bytes, reduction_.costs)) {
      return pack_elements(*format, count);
    }
    return pack_blocks(blocks);
  }

  // By element if that is smaller than dense.
  Segment pack_sparse(std::size_t count) const {
    const wire::Format format = smaller_by_element(layout_, count);
    const std::size_t head = wire::positions_bytes(format, layout_, count);
    const bool is_small = head + count * layout_.element_size < layout_.bytes();
    return is_small ? pack_elements(format, count) : pack_blocks(wire::full_bitmap(layout_));
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
    return segment_of_elements(format, named_, count, layout_, [&](std::byte* out) {
      write_sums(out, count, reduction_, [&](std::byte* sums) {
        kernels().gather(sums, memory_, size_, words(), named_.data());
      });
    });
  }

  Segment pack_blocks(const wire::BlockBitmap& blocks) const {
    return segment_of_blocks(blocks, layout_, [&](std::byte* out, std::size_t count) {
      if (count == layout_.count) {  // They lie as they are sent.
        return kernels().finish(out, memory_, count, reduction_.dtype, reduction_.op,
                                reduction_.world_size);
      }
      write_sums(out, count, reduction_, [&](std::byte* sums) {
        sparsewire::pack(sums, memory_, layout_.count, size_, layout_.block, blocks.data());
      });
    });
  }

  // Only named elements were written.
  void clear() {
    for (std::size_t word = 0; word < words(); ++word) {
      if (named_[word] == 0) continue;
      const std::size_t first = word * 64;
      std::memset(memory_ + first * size_, 0,
                  std::min<std::size_t>(64, layout_.count - first) * size_);
    }
  }

  std::size_t words() const { return bitmap_words(layout_.count); }

  const Reduction& reduction_;
  const BlockLayout& layout_;
  const DType accumulator_;
  const std::size_t size_;  // bytes of an accumulator
  std::byte* memory_;
  wire::ElementBitmap named_{};
};

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
