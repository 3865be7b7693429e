// The reduction by element.
#include "proto/stream/element_sum.hpp"

#include <cstring>
#include <vector>

#include "kernels/blocks.hpp"
#include "kernels/kernels.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {
namespace {

// acc[local] += x, which cannot be vectorised; integers wrap around. In the same pass the bit of
// each local is set, as set_ascending() does it: most of either is waiting for memory.
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

}  // namespace

ElementSum::ElementSum(const Reduction& reduction, const BlockLayout& layout, Scratch& scratch)
    : reduction_(reduction),
      layout_(layout),
      accumulator_(accumulator_of(reduction.dtype)),
      size_(element_size(accumulator_)),
      memory_(scratch.zeros()) {}

void ElementSum::add(const wire::SegmentView& segment) {
  if (segment.format == wire::Format::coordinates) return add_coordinates(segment);
  const wire::ElementBitmap elements = wire::elements_of(segment, layout_);
  note(elements);
  if (segment.format == wire::Format::bitmap) {
    kernels().add_at(memory_, segment.values.data(), words(), elements.data(), reduction_.dtype);
  } else {
    add_blocks(segment);
  }
}

void ElementSum::note(const wire::ElementBitmap& elements) {
  for (std::size_t word = 0; word < words(); ++word) named_[word] |= elements[word];
}

void ElementSum::add_coordinates(const wire::SegmentView& segment) {
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

void ElementSum::add_blocks(const wire::SegmentView& segment) {
  const std::byte* values = segment.values.data();
  for_each_run(segment.bitmap.data(), layout_.blocks(), [&](std::size_t first, std::size_t length) {
    const std::size_t begin = first * layout_.block;
    const std::size_t count = std::min(length * layout_.block, layout_.count - begin);
    kernels().add(memory_ + begin * size_, values, count, reduction_.dtype, reduction_.op);
    values += count * layout_.element_size;
  });
}

Segment ElementSum::pack() {
  Segment segment = reduction_.form == wire::ResultForm::dense
                        ? pack_blocks(wire::full_bitmap(layout_))
                        : pack_cheapest();
  clear();
  return segment;
}

Segment ElementSum::pack_cheapest() const {
  const std::size_t count = count_set(named_.data(), layout_.count);
  const wire::BlockBitmap blocks = named_blocks();
  if (reduction_.form == wire::ResultForm::sparse) return pack_sparse(count);
  const std::size_t bytes = wire::packed_bytes(blocks, layout_);
  if (const auto format = format_by_element(layout_, count, bytes, reduction_.costs)) {
    return pack_elements(*format, count);
  }
  return pack_blocks(blocks);
}

// By element wherever that is not larger than dense.
Segment ElementSum::pack_sparse(std::size_t count) const {
  const wire::Format format = smaller_by_element(layout_, count);
  const std::size_t head = wire::positions_bytes(format, layout_, count);
  if (head + count * layout_.element_size >= layout_.bytes()) {
    return pack_blocks(wire::full_bitmap(layout_));
  }
  return pack_elements(format, count);
}

wire::BlockBitmap ElementSum::named_blocks() const {
  wire::BlockBitmap blocks{};
  for (std::size_t block = 0; block < layout_.blocks(); ++block) {
    const std::size_t begin = block * layout_.block;
    const std::size_t end = std::min(begin + layout_.block, layout_.count);
    if (find_bit(named_.data(), begin, end, true) < end) set_range(blocks.data(), block, 1);
  }
  return blocks;
}

Segment ElementSum::pack_elements(wire::Format format, std::size_t count) const {
  const std::size_t head = wire::positions_bytes(format, layout_, count);
  const std::size_t size = head + count * layout_.element_size;
  auto owner = Bytes::allocate(size);
  wire::encode_positions(format, named_, layout_, owner.get());
  std::byte* const values = owner.get() + head;
  // Sums that need no other type are gathered right where they go.
  const bool is_final = accumulator_ == reduction_.dtype;
  const auto packed = is_final ? nullptr : Bytes::allocate(count * size_);
  std::byte* const sums = is_final ? values : packed.get();
  kernels().gather(sums, memory_, size_, words(), named_.data());
  if (!is_final || reduction_.op == ReduceOp::avg) finish(values, sums, count);
  return {format, Codec::raw, Bytes::shared(std::move(owner), size)};
}

Segment ElementSum::pack_blocks(const wire::BlockBitmap& blocks) const {
  const bool dense = all_set(blocks.data(), layout_.blocks());
  const std::size_t head = dense ? 0 : wire::bitmap_bytes(layout_);
  const std::size_t bytes = wire::packed_bytes(blocks, layout_);
  const std::size_t count = bytes / layout_.element_size;
  auto owner = Bytes::allocate(head + bytes);
  if (dense) {
    finish(owner.get(), memory_, count);
  } else {
    wire::encode_bitmap(blocks, layout_, owner.get());
    auto packed = Bytes::allocate(count * size_);
    sparsewire::pack(packed.get(), memory_, layout_.count, size_, layout_.block, blocks.data());
    finish(owner.get() + head, packed.get(), count);
  }
  return {dense ? wire::Format::dense : wire::Format::blocks, Codec::raw,
          Bytes::shared(std::move(owner), head + bytes)};
}

void ElementSum::finish(std::byte* out, const std::byte* packed, std::size_t count) const {
  kernels().finish(out, packed, count, reduction_.dtype, reduction_.op, reduction_.world_size);
}

// Only what was named was written.
void ElementSum::clear() {
  for (std::size_t word = 0; word < words(); ++word) {
    if (named_[word] == 0) continue;
    const std::size_t first = word * 64;
    std::memset(memory_ + first * size_, 0,
                std::min<std::size_t>(64, layout_.count - first) * size_);
  }
}

}  // namespace sparsewire::proto
