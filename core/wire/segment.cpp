// Encodes and decodes segments: dense ones, blocks behind a bitmap, and single elements.
#include "wire/segment.hpp"

#include "base/bitmap.hpp"
#include "wire/codec.hpp"
#include "wire/little_endian.hpp"
#include "wire/locals.hpp"

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

// Splits the payload behind its first `head` bytes and checks what must be `count` values.
Result<SegmentView> with_values(SegmentView view, std::span<const std::byte> payload,
                                std::size_t head, const BlockLayout& layout) {
  if (payload.size() != head + values_bytes(view.codec, layout.element_size, view.count)) {
    return protocol_error("segment: its length does not fit what it names");
  }
  if (is_by_element(view.format)) view.positions = payload.first(head);
  view.values = payload.subspan(head);
  if (Status error = check_values(view.codec, layout.element_size, view.values, view.count)) {
    return *std::move(error);
  }
  return view;
}

Result<SegmentView> decode_blocks(Codec codec, std::span<const std::byte> payload,
                                  const BlockLayout& layout) {
  const std::size_t head = bitmap_bytes(layout);
  if (payload.size() <= head) return protocol_error("segment: shorter than its bitmap");
  SegmentView view{
      .format = Format::blocks, .bitmap = load_bitmap(payload.data(), head / 8), .codec = codec};
  if (!stays_inside(view.bitmap, layout.blocks())) {
    return protocol_error("segment: a bit is set beyond the last block");
  }
  view.count = packed_bytes(view.bitmap, layout) / layout.element_size;
  return with_values(view, payload, head, layout);
}

std::size_t element_words(const BlockLayout& layout) { return bitmap_words(layout.count); }

Result<SegmentView> decode_bitmap(Codec codec, std::span<const std::byte> payload,
                                  const BlockLayout& layout) {
  const std::size_t head = positions_bytes(Format::bitmap, layout, 0);
  if (payload.size() <= head) return protocol_error("segment: shorter than its bitmap");
  SegmentView view{.format = Format::bitmap, .codec = codec};
  for (std::size_t at = 0; at < head; at += 8) {
    view.count += bits_set(load<std::uint64_t>(payload.data() + at));
  }
  const auto last = load<std::uint64_t>(payload.data() + head - 8);
  const std::size_t used = (layout.count - 1) % 64 + 1;
  if (used < 64 && (last >> used) != 0) {
    return protocol_error("segment: a bit is set beyond the last element");
  }
  return with_values(view, payload, head, layout);
}

// How many coordinates take so many bytes. Their size rises with their number, but not evenly,
// where a codec puts them in spans.
std::size_t coordinates_in(std::size_t bytes, Codec codec, const BlockLayout& layout) {
  std::size_t low = 0;
  std::size_t high = layout.count;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const bool fits = 2 * middle + values_bytes(codec, layout.element_size, middle) >= bytes;
    (fits ? high : low) = fits ? middle : middle + 1;
  }
  return low;
}

Result<SegmentView> decode_coordinates(Codec codec, std::span<const std::byte> payload,
                                       const BlockLayout& layout) {
  const std::size_t count = coordinates_in(payload.size(), codec, layout);
  if (count == 0 || 2 * count > payload.size()) {
    return protocol_error("segment: its length is no whole number of coordinates");
  }
  const auto local = [&](std::size_t i) { return load<std::uint16_t>(payload.data() + 2 * i); };
  if (!ascend(payload.data(), count)) return protocol_error("segment: its indices do not ascend");
  if (local(count - 1) >= layout.count) return protocol_error("segment: an index is out of range");
  return with_values({.format = Format::coordinates, .count = count, .codec = codec}, payload,
                     2 * count, layout);
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
    set_ascending(elements.data(), segment.positions.size() / 2,
                  [at](std::size_t i) { return load<std::uint16_t>(at + 2 * i); });
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

Result<SegmentView> decode_segment(Format format, Codec codec, std::span<const std::byte> payload,
                                   const BlockLayout& layout) {
  if (is_by_element(format) && layout.count == 0) {
    return protocol_error("segment: its chunk has no elements");
  }
  if (format == Format::blocks) return decode_blocks(codec, payload, layout);
  if (format == Format::bitmap) return decode_bitmap(codec, payload, layout);
  if (format == Format::coordinates) return decode_coordinates(codec, payload, layout);
  if (format != Format::dense) return protocol_error("segment: not the format of one chunk");
  return with_values({.format = Format::dense,
                      .bitmap = full_bitmap(layout),
                      .count = layout.count,
                      .codec = codec},
                     payload, 0, layout);
}

}  // namespace sparsewire::wire
