// Writes indices by vector instructions, and values as they lie in the segment.
#include "proto/sparse/chunk_list.hpp"

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"
#include "proto/sparse/named.hpp"

namespace sparsewire::proto {
namespace {

std::size_t list_bits(const std::uint64_t* bitmap, std::size_t words, std::int32_t base,
                      std::int32_t* out) {
  return kernels().list_bits_32(bitmap, words, base, out);
}

std::size_t list_bits(const std::uint64_t* bitmap, std::size_t words, std::int64_t base,
                      std::int64_t* out) {
  return kernels().list_bits_64(bitmap, words, base, out);
}

void list_locals(const std::byte* locals, std::size_t count, std::int32_t base, std::int32_t* out) {
  kernels().list_locals_32(locals, count, base, out);
}

void list_locals(const std::byte* locals, std::size_t count, std::int64_t base, std::int64_t* out) {
  kernels().list_locals_64(locals, count, base, out);
}

template <typename Index>
void append_nonzeros(const Nonzeros& found, const BlockLayout& layout, Index base,
                     SparseCursor<Index>& out) {
  const std::size_t words = bitmap_words(layout.count);
  out.indices += list_bits(found.elements.data(), words, base, out.indices);
  kernels().gather(out.values, found.values, layout.element_size, words, found.elements.data());
  out.values += found.count * layout.element_size;
}

template <typename Index>
void append_named(const Named& named, std::size_t value_bytes, Index base,
                  SparseCursor<Index>& out) {
  const std::size_t count = named.locals.size();
  append_locals(reinterpret_cast<const std::byte*>(named.locals.data()), count, base, out);
  append_values({named.values, count * value_bytes}, out);
}

}  // namespace

template <typename Index>
void append_locals(const std::byte* locals, std::size_t count, Index base,
                   SparseCursor<Index>& out) {
  list_locals(locals, count, base, out.indices);
  out.indices += count;
}

template <typename Index>
void list_chunk(Contribution contribution, const BlockLayout& layout, DType dtype,
                std::uint32_t row, Index base, SparseCursor<Index>& out) {
  const wire::SegmentView& view = contribution.values;
  if (view.format == wire::Format::coordinates) {
    append_locals(view.positions.data(), view.count, base, out);
  } else if (view.format == wire::Format::bitmap) {
    const wire::ElementBitmap elements = wire::elements_of(view, layout);
    out.indices += list_bits(elements.data(), bitmap_words(layout.count), base, out.indices);
  } else if (view.format == wire::Format::blocks && row != 1) {
    out.indices += list_bits(view.bitmap.data(), bitmap_words(layout.blocks()), base, out.indices);
  } else if (row == 1) {
    return append_nonzeros(find_nonzeros(contribution, layout, dtype), layout, base, out);
  } else {
    const Named named = list_named(std::move(contribution), layout, dtype, row);
    return append_named(named, row * layout.element_size, base, out);
  }
  append_values(view.values, out);
}

template void append_locals(const std::byte*, std::size_t, std::int32_t,
                            SparseCursor<std::int32_t>&);
template void append_locals(const std::byte*, std::size_t, std::int64_t,
                            SparseCursor<std::int64_t>&);
template void list_chunk(Contribution, const BlockLayout&, DType, std::uint32_t, std::int32_t,
                         SparseCursor<std::int32_t>&);
template void list_chunk(Contribution, const BlockLayout&, DType, std::uint32_t, std::int64_t,
                         SparseCursor<std::int64_t>&);

}  // namespace sparsewire::proto
