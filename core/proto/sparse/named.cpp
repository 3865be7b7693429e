// Lists the elements or rows of a segment, whatever its format.
#include "proto/sparse/named.hpp"

#include <cstring>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire::proto {
namespace {

void list_bits(const std::uint64_t* bitmap, std::size_t words, std::vector<std::uint16_t>& out) {
  for (std::size_t word = 0; word < words; ++word) {
    for (std::uint64_t bits = bitmap[word]; bits != 0; bits &= bits - 1) {
      out.push_back(
          static_cast<std::uint16_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

void list_coordinates(const wire::SegmentView& view, std::vector<std::uint16_t>& out) {
  out.resize(view.count);
  std::memcpy(out.data(), view.positions.data(), view.positions.size());
}

// Takes the elements that are not zero out of whole blocks.
void list_nonzeros(Named& named, const BlockLayout& layout, DType dtype) {
  const Nonzeros found = find_nonzeros(named.memory, layout, dtype);
  const std::size_t words = bitmap_words(layout.count);
  named.locals.reserve(found.count);
  list_bits(found.elements.data(), words, named.locals);
  auto packed = Bytes::allocate(found.count * layout.element_size);
  kernels().gather(packed.get(), found.values, layout.element_size, words, found.elements.data());
  named.memory.decoded = Bytes::shared(std::move(packed), found.count * layout.element_size);
  named.values = named.memory.decoded.data();
}

// A dense segment names every row; those of zeros are left out.
void list_rows(Named& named, const BlockLayout& layout) {
  const wire::SegmentView& view = named.memory.values;
  if (view.format != wire::Format::dense) {
    return list_bits(view.bitmap.data(), bitmap_words(layout.blocks()), named.locals);
  }
  const std::size_t size = layout.block_bytes();
  const std::vector<std::byte> zeros(size);
  auto packed = Bytes::allocate(view.values.size());
  std::size_t end = 0;
  for (std::size_t row = 0; row < layout.blocks(); ++row) {
    const std::byte* const values = view.values.data() + row * size;
    if (std::memcmp(values, zeros.data(), size) == 0) continue;
    named.locals.push_back(static_cast<std::uint16_t>(row));
    std::memcpy(packed.get() + end, values, size);
    end += size;
  }
  named.memory.decoded = Bytes::shared(std::move(packed), end);
  named.values = named.memory.decoded.data();
}

}  // namespace

Nonzeros find_nonzeros(const Contribution& contribution, const BlockLayout& layout, DType dtype) {
  Nonzeros found{.values = contribution.values.values.data()};
  if (contribution.values.format != wire::Format::dense) {
    found.memory = Bytes::allocate(layout.bytes());
    write_chunk(contribution, layout, found.memory.get());
    found.values = found.memory.get();
  }
  found.count = kernels().mark(found.values, layout.count, dtype, found.elements.data()).nonzero;
  return found;
}

void write_chunk(const Contribution& contribution, const BlockLayout& layout, std::byte* target) {
  const bool has_gaps = contribution.values.format != wire::Format::dense;
  if (has_gaps) std::memset(target, 0, layout.bytes());
  write_named(contribution, layout, target);
}

Named list_named(Contribution contribution, const BlockLayout& layout, DType dtype,
                 std::uint32_t row) {
  Named named{.locals = {}, .values = contribution.values.values.data(), .memory = {}};
  named.memory = std::move(contribution);
  const wire::SegmentView& view = named.memory.values;
  if (view.format == wire::Format::coordinates) {
    list_coordinates(view, named.locals);
  } else if (view.format == wire::Format::bitmap) {
    named.locals.reserve(view.count);
    const wire::ElementBitmap elements = wire::elements_of(view, layout);
    list_bits(elements.data(), bitmap_words(layout.count), named.locals);
  } else if (row != 1) {
    list_rows(named, layout);
  } else {
    list_nonzeros(named, layout, dtype);
  }
  return named;
}

}  // namespace sparsewire::proto
