// Random layouts, and segments of them in every format.
#pragma once

#include "base/bitmap.hpp"
#include "random.hpp"
#include "wire/segment.hpp"

namespace sparsewire::test {

inline BlockLayout random_layout(Random& random) {
  const std::size_t block = std::size_t{16} << below(9, random);
  const std::size_t longest = std::min<std::size_t>(wire::kMaxChunkElements, 70 * block);
  return {1 + below(longest, random), pick({2u, 4u, 8u}, random), block};
}

inline wire::BlockBitmap random_bitmap(const BlockLayout& layout, Random& random) {
  wire::BlockBitmap bitmap{};
  bitmap[0] = 1;
  for (std::size_t i = 0; i < layout.blocks(); ++i) {
    if (one_in(3, random)) bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return bitmap;
}

inline std::size_t packed_bytes_of(const wire::BlockBitmap& bitmap, const BlockLayout& layout) {
  std::size_t elements = 0;
  for (std::size_t i = 0; i < layout.count; ++i) {
    elements += test_bit(bitmap.data(), i / layout.block);
  }
  return elements * layout.element_size;
}

inline Buffer blocks_payload(const wire::BlockBitmap& bitmap, const BlockLayout& layout) {
  const std::size_t head = wire::bitmap_bytes(layout);
  Buffer payload(head + packed_bytes_of(bitmap, layout), std::byte{7});
  wire::encode_bitmap(bitmap, layout, payload.data());
  return payload;
}

inline wire::ElementBitmap element_bitmap(const BlockLayout& layout, Random& random) {
  wire::ElementBitmap elements{};
  elements[0] = 1;
  for (std::size_t i = 0; i < layout.count; ++i) {
    if (one_in(7, random)) elements[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return elements;
}

inline Buffer elements_payload(wire::Format format, const wire::ElementBitmap& elements,
                               const BlockLayout& layout) {
  const std::size_t count = count_set(elements.data(), layout.count);
  const std::size_t head = wire::positions_bytes(format, layout, count);
  Buffer payload(head + count * layout.element_size, std::byte{7});
  wire::encode_positions(format, elements, layout, payload.data());
  return payload;
}

}  // namespace sparsewire::test
