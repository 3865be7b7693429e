// Encodes and decodes segments (dense, blocks after a bitmap, single elements), packed coordinates
// of many chunks, and bundles.
#include "wire/segment.hpp"

#include "base/bitmap.hpp"
#include "wire/codec.hpp"
#include "wire/layout.hpp"

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

// Splits the payload after its first `head` bytes, and checks that `count` values follow.
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

// How many coordinates take `bytes` bytes. The size rises with the number, but not evenly if a
// codec has spans.
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

// Whether each index is greater than the one before. Wrong ones are noted in a number as wide as an
// index, so that the vectoriser makes one pass without a branch.
bool ascend(const std::byte* locals, std::size_t count) {
  std::uint16_t wrong = 0;
  for (std::size_t i = 1; i < count; ++i) {
    const std::uint16_t before = local_at(locals, i - 1);
    const std::uint16_t here = local_at(locals, i);
    wrong = static_cast<std::uint16_t>(wrong | (here <= before ? 1 : 0));
  }
  return wrong == 0;
}

Result<SegmentView> decode_coordinates(Codec codec, std::span<const std::byte> payload,
                                       const BlockLayout& layout) {
  const std::size_t count = coordinates_in(payload.size(), codec, layout);
  if (count == 0 || 2 * count > payload.size()) {
    return protocol_error("segment: its length is no whole number of coordinates");
  }
  if (!ascend(payload.data(), count)) return protocol_error("segment: its indices do not ascend");
  if (local_at(payload.data(), count - 1) >= layout.count)
    return protocol_error("segment: an index is out of range");
  return with_values({.format = Format::coordinates, .count = count, .codec = codec}, payload,
                     2 * count, layout);
}

Status check_locals(const PackedView& view, std::size_t chunk_elements, std::size_t last_elements) {
  std::size_t first = 0;
  for (std::size_t chunk = 0; chunk < view.chunks(); ++chunk) {
    const std::size_t count = view.count_in(chunk);
    const std::size_t limit = chunk + 1 == view.chunks() ? last_elements : chunk_elements;
    if (count > view.count - first) return protocol_error("packed: its counts are too large");
    if (!ascend(view.locals.data() + 2 * first, count)) {
      return protocol_error("packed: its indices do not ascend");
    }
    first += count;
    if (count != 0 && local_at(view.locals.data(), first - 1) >= limit) {
      return protocol_error("packed: an index is out of range");
    }
  }
  return first == view.count ? Status{} : protocol_error("packed: its counts are too small");
}

std::size_t size_of(const Piece& piece) { return kPieceHeaderBytes + piece.payload.size(); }

std::byte* encode(const Piece& piece, std::byte* at) {
  store_all(std::span<std::byte, kPieceHeaderBytes>(at, kPieceHeaderBytes), piece.chunk,
            piece.format, piece.codec, std::uint16_t{0},
            static_cast<std::uint32_t>(piece.payload.size()));
  std::memcpy(at + kPieceHeaderBytes, piece.payload.data(), piece.payload.size());
  return at + size_of(piece);
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
                  [at](std::size_t i) { return local_at(at, i); });
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

std::size_t PackedView::count_in(std::size_t chunk) const {
  return load<std::uint32_t>(counts.data() + 4 * chunk);
}

std::size_t packed_positions_bytes(std::size_t chunks, std::size_t count) {
  return 4 * chunks + 2 * count;
}

PackedView view_packed(Codec codec, std::span<const std::byte> payload, std::size_t chunks) {
  PackedView view{.counts = payload.first(4 * chunks), .codec = codec};
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) view.count += view.count_in(chunk);
  const std::size_t head = packed_positions_bytes(chunks, view.count);
  if (head > payload.size()) return view;
  view.locals = payload.subspan(4 * chunks, 2 * view.count);
  view.values = payload.subspan(head);
  return view;
}

Result<PackedView> decode_packed(Codec codec, std::span<const std::byte> payload,
                                 std::size_t chunks, std::size_t chunk_elements,
                                 const BlockLayout& last) {
  if (payload.size() < 4 * chunks) return protocol_error("packed: shorter than its counts");
  PackedView view = view_packed(codec, payload, chunks);
  if (view.count > chunks * chunk_elements ||
      payload.size() != packed_positions_bytes(chunks, view.count) +
                            values_bytes(codec, last.element_size, view.count)) {
    return protocol_error("packed: its length does not fit its counts");
  }
  if (Status error = check_values(codec, last.element_size, view.values, view.count)) {
    return *std::move(error);
  }
  if (Status error = check_locals(view, chunk_elements, last.count)) return *std::move(error);
  return view;
}

Bytes encode_bundle(std::span<const Piece> pieces, std::size_t& first) {
  std::size_t size = 0;
  std::size_t last = first;
  while (last < pieces.size() && (size == 0 || size + size_of(pieces[last]) <= kBundleBytes)) {
    size += size_of(pieces[last++]);
  }
  if (size == 0) return {};
  auto owner = Bytes::allocate(size);
  std::byte* at = owner.get();
  for (; first < last; ++first) at = encode(pieces[first], at);
  return Bytes::shared(std::move(owner), size);
}

Status decode_bundle(const Bytes& bundle, std::vector<Piece>& out) {
  for (std::size_t at = 0; at < bundle.size();) {
    if (bundle.size() - at < kPieceHeaderBytes) return protocol_error("bundle: it is cut off");
    const auto [chunk, format, codec, zero, size] =
        load_all<std::uint64_t, std::uint8_t, std::uint8_t, std::uint16_t, std::uint32_t>(
            bundle.view().subspan(at).first<kPieceHeaderBytes>());
    at += kPieceHeaderBytes;
    const bool is_known = format != 0 && format < kFormatCount && codec < kCodecCount;
    if (!is_known || zero != 0 || size == 0 || size > bundle.size() - at) {
      return protocol_error("bundle: a piece is malformed");
    }
    if (!out.empty() && chunk <= out.back().chunk) {
      return protocol_error("bundle: its chunks do not ascend");
    }
    out.push_back(
        {chunk, static_cast<Format>(format), static_cast<Codec>(codec), bundle.part(at, size)});
    at += size;
  }
  return {};
}

}  // namespace sparsewire::wire
