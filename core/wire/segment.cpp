// Encodes and decodes segments: dense ones, and blocks behind a bitmap.
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
  const SegmentView view{load_bitmap(payload.data(), head / 8), payload.subspan(head)};
  if (!stays_inside(view.bitmap, layout.blocks())) {
    return protocol_error("segment: a bit is set beyond the last block");
  }
  if (view.values.size() != packed_bytes(view.bitmap, layout)) {
    return protocol_error("segment: its length does not fit its bitmap");
  }
  return view;
}

}  // namespace

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
  if (format == Format::blocks) return decode_blocks(payload, layout);
  if (format == Format::empty || payload.size() != layout.bytes()) {
    return protocol_error("segment: a dense one must hold every element of its chunk");
  }
  return SegmentView{full_bitmap(layout), payload};
}

}  // namespace sparsewire::wire
