// Encodes and decodes segments: dense ones, blocks behind a bitmap, and single elements.
#include "wire/segment.hpp"

#include "base/bitmap.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {
namespace {

BlockBitmap load_bitmap(const std::byte* in, std::size_t words) {
  BlockBitmap bitmap{};
  for (std::size_t word = 0; word < words; ++word) {
    bitmap[word] = load<std::uint64_t>(in + word * 8);
  }
  return bitmap;
}

bool stays_inside(const BlockBitmap& bitmap, std::size_t blocks) {
  return count_set(bitmap.data(), bitmap.size() * kBitmapWordBits) ==
         count_set(bitmap.data(), blocks);
}

Result<SegmentView> decode_blocks(std::span<const std::byte> payload, const BlockLayout& layout) {
  const std::size_t head = bitmap_bytes(layout);
  if (payload.size() <= head) return protocol_error("segment: shorter than its bitmap");
  const SegmentView view{
      Format::blocks, load_bitmap(payload.data(), head / 8), {}, payload.subspan(head)};
  if (!stays_inside(view.bitmap, layout.blocks())) {
    return protocol_error("segment: a bit is set beyond the last block");
  }
  if (view.values.size() != packed_bytes(view.bitmap, layout)) {
    return protocol_error("segment: its length does not fit its bitmap");
  }
  return view;
}

std::size_t element_words(const BlockLayout& layout) { return bitmap_words(layout.count); }

Result<SegmentView> decode_bitmap(std::span<const std::byte> payload, const BlockLayout& layout) {
  const std::size_t head = positions_bytes(Format::bitmap, layout, 0);
  if (payload.size() <= head) return protocol_error("segment: shorter than its bitmap");
  std::size_t count = 0;
  for (std::size_t at = 0; at < head; at += 8) {
    count += static_cast<std::size_t>(std::popcount(load<std::uint64_t>(payload.data() + at)));
  }
  const auto last = load<std::uint64_t>(payload.data() + head - 8);
  const std::size_t used = (layout.count - 1) % 64 + 1;
  if (used < 64 && (last >> used) != 0) {
    return protocol_error("segment: a bit is set beyond the last element");
  }
  if (payload.size() != head + count * layout.element_size) {
    return protocol_error("segment: its length does not fit its bitmap");
  }
  return SegmentView{Format::bitmap, {}, payload.first(head), payload.subspan(head)};
}

Result<SegmentView> decode_coordinates(std::span<const std::byte> payload,
                                       const BlockLayout& layout) {
  const std::size_t count = payload.size() / (2 + layout.element_size);
  if (count == 0 || payload.size() != count * (2 + layout.element_size)) {
    return protocol_error("segment: its length is no whole number of coordinates");
  }
  std::size_t next = 0;  // the smallest index that may follow
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = load<std::uint16_t>(payload.data() + 2 * i);
    if (index < next) return protocol_error("segment: its indices do not ascend");
    next = index + 1;
  }
  if (next > layout.count) return protocol_error("segment: an index is out of range");
  return SegmentView{Format::coordinates, {}, payload.first(2 * count), payload.subspan(2 * count)};
}

}  // namespace

std::size_t positions_bytes(Format format, const BlockLayout& layout, std::size_t count) {
  return format == Format::bitmap ? element_words(layout) * 8 : count * 2;
}

void encode_positions(Format format, const ElementBitmap& elements, const BlockLayout& layout,
                      std::byte* out) {
  for (std::size_t word = 0; word < element_words(layout); ++word) {
    std::uint64_t bits = elements[word];
    if (format == Format::bitmap) {
      store(out + word * 8, bits);
      continue;
    }
    for (; bits != 0; bits &= bits - 1, out += 2) {
      store(out, static_cast<std::uint16_t>(word * 64 +
                                            static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

ElementBitmap elements_of(const SegmentView& segment, const BlockLayout& layout) {
  ElementBitmap elements{};
  const std::byte* at = segment.positions.data();
  if (segment.format == Format::bitmap) {
    for (std::size_t i = 0; i < segment.positions.size() / 8; ++i) {
      elements[i] = load<std::uint64_t>(at + i * 8);
    }
  } else if (segment.format == Format::coordinates) {
    for (std::size_t i = 0; i < segment.positions.size(); i += 2) {
      const std::size_t index = load<std::uint16_t>(at + i);
      elements[index / 64] |= std::uint64_t{1} << (index % 64);
    }
  } else {
    for_each_run(segment.bitmap.data(), layout.blocks(),
                 [&](std::size_t first, std::size_t length) {
                   const std::size_t end = std::min((first + length) * layout.block, layout.count);
                   set_range(elements.data(), first * layout.block, end - first * layout.block);
                 });
  }
  return elements;
}

BlockBitmap full_bitmap(const BlockLayout& layout) {
  BlockBitmap bitmap{};
  const std::size_t blocks = layout.blocks();
  for (std::size_t word = 0; word < blocks / 64; ++word) bitmap[word] = ~std::uint64_t{0};
  if (blocks % 64 != 0) bitmap[blocks / 64] = (std::uint64_t{1} << (blocks % 64)) - 1;
  return bitmap;
}

std::size_t bitmap_bytes(const BlockLayout& layout) { return bitmap_words(layout.blocks()) * 8; }

void encode_bitmap(const BlockBitmap& bitmap, const BlockLayout& layout, std::byte* out) {
  const std::size_t words = bitmap_words(layout.blocks());
  for (std::size_t word = 0; word < words; ++word) store(out + word * 8, bitmap[word]);
}

std::size_t packed_bytes(const BlockBitmap& bitmap, const BlockLayout& layout) {
  const std::size_t blocks = layout.blocks();
  if (blocks == 0) return 0;
  const std::size_t all = count_set(bitmap.data(), blocks) * layout.block_bytes();
  const std::size_t short_of = blocks * layout.block_bytes() - layout.bytes();
  return test_bit(bitmap.data(), blocks - 1) ? all - short_of : all;
}

Result<SegmentView> decode_segment(Format format, std::span<const std::byte> payload,
                                   const BlockLayout& layout) {
  if (is_by_element(format) && layout.count == 0) {
    return protocol_error("segment: its chunk has no elements");
  }
  if (format == Format::blocks) return decode_blocks(payload, layout);
  if (format == Format::bitmap) return decode_bitmap(payload, layout);
  if (format == Format::coordinates) return decode_coordinates(payload, layout);
  if (format == Format::empty || payload.size() != layout.bytes()) {
    return protocol_error("segment: a dense one must hold every element of its chunk");
  }
  return SegmentView{Format::dense, full_bitmap(layout), {}, payload};
}

}  // namespace sparsewire::wire
