// Walks over the indices stripe by stripe; within a stripe they only need a constant added.
#include "proto/sparse/splitter.hpp"

#include <algorithm>
#include <bit>

#include "wire/layout.hpp"

namespace sparsewire::proto {
namespace {

// A segment of all elements of a chunk, if they are few. `shift` makes their indices local.
template <typename Index>
Segment coordinates_of(const Index* indices, std::size_t count, Index shift,
                       const std::byte* values, std::size_t value_bytes) {
  const std::size_t size = count * (2 + value_bytes);
  auto owner = Bytes::allocate(size);
  for (std::size_t i = 0; i < count; ++i) {
    wire::store(owner.get() + 2 * i, static_cast<std::uint16_t>(indices[i] + shift));
  }
  std::memcpy(owner.get() + 2 * count, values, count * value_bytes);
  return {wire::Format::coordinates, Codec::raw, Bytes::shared(std::move(owner), size)};
}

}  // namespace

void SegmentBuilder::start(const BlockLayout& layout, std::size_t unit, std::size_t capacity,
                           std::size_t expected) {
  layout_ = layout;
  value_bytes_ = unit * layout.element_size;
  places_ = layout.count / unit;
  head_ = bitmap_words(places_) * 8;
  by_bits_ = unit != 1 || expected * 2 > head_;
  count_ = 0;
  if (by_bits_) std::fill_n(bits_.begin(), bitmap_words(places_), 0);
  reserve(std::min(capacity, places_));
}

// Memory that went out with the last segment is not ours any more; other memory is used again.
void SegmentBuilder::reserve(std::size_t capacity) {
  if (!by_bits_ && locals_.size() < capacity) locals_.resize(capacity);
  const std::size_t size = head_ + capacity * value_bytes_;
  if (memory_ && room_ >= size) return;
  memory_ = Bytes::allocate(size);
  room_ = size;
}

template <typename Index>
void SegmentBuilder::add(const Index* indices, std::size_t count, Index shift,
                         const std::byte* values) {
  std::memcpy(memory_.get() + head_ + count_ * value_bytes_, values, count * value_bytes_);
  const auto local = [&](std::size_t i) { return static_cast<std::size_t>(indices[i] + shift); };
  if (!by_bits_) {
    for (std::size_t i = 0; i < count; ++i) {
      locals_[count_ + i] = static_cast<std::uint16_t>(local(i));
    }
  } else if (local(count - 1) - local(0) + 1 == count) {
    set_range(bits_.data(), local(0), count);
  } else {
    set_ascending(bits_.data(), count, local);
  }
  count_ += count;
}

std::optional<Segment> SegmentBuilder::encode() {
  if (count_ == 0) return {};
  if (!by_bits_ && 2 * count_ <= head_) return encode_coordinates();
  if (!by_bits_) mark_locals();
  return encode_bits();
}

// More came than expected: a bitmap is smaller after all.
void SegmentBuilder::mark_locals() {
  std::fill_n(bits_.begin(), bitmap_words(places_), 0);
  set_ascending(bits_.data(), count_, [this](std::size_t i) { return locals_[i]; });
}

Segment SegmentBuilder::encode_bits() {
  const std::size_t values = count_ * value_bytes_;
  const bool by_blocks = value_bytes_ != layout_.element_size;
  if (head_ + values > layout_.bytes() && count_ != places_) return encode_dense();
  for (std::size_t word = 0; word < bitmap_words(places_); ++word) {
    wire::store(memory_.get() + word * 8, bits_[word]);
  }
  const Bytes all = Bytes::shared(std::move(memory_), head_ + values);
  if (count_ == places_) return {wire::Format::dense, Codec::raw, all.part(head_, values)};
  return {by_blocks ? wire::Format::blocks : wire::Format::bitmap, Codec::raw, all};
}

// Nearly all elements are named: zeros in the gaps take less than a bitmap.
Segment SegmentBuilder::encode_dense() const {
  auto owner = Bytes::allocate(layout_.bytes());
  std::memset(owner.get(), 0, layout_.bytes());
  const std::byte* values = memory_.get() + head_;
  for_each_run(bits_.data(), places_, [&](std::size_t first, std::size_t length) {
    std::memcpy(owner.get() + first * value_bytes_, values, length * value_bytes_);
    values += length * value_bytes_;
  });
  return {wire::Format::dense, Codec::raw, Bytes::shared(std::move(owner), layout_.bytes())};
}

Segment SegmentBuilder::encode_coordinates() const {
  const std::size_t head = 2 * count_;
  const std::size_t values = count_ * value_bytes_;
  auto owner = Bytes::allocate(head + values);
  std::memcpy(owner.get(), locals_.data(), head);
  std::memcpy(owner.get() + head, memory_.get() + head_, values);
  return {wire::Format::coordinates, Codec::raw, Bytes::shared(std::move(owner), head + values)};
}

// --- Rows of chunks ---

Splitter::Splitter(const SparseTensor& tensor, const ChunkGrid& grid)
    : tensor_(tensor),
      grid_(grid),
      stripes_(grid),
      groups_(grid.chunk_elements / grid.block),
      width_(grid.block / tensor.descriptor.row),
      positions_(grid.chunk_elements * grid.columns / tensor.descriptor.row),
      builders_(grid.columns) {}

std::optional<std::uint64_t> Splitter::next_row() const {
  if (cursor_ == tensor_.named) return {};
  const auto index = with_indices(
      tensor_, [&](const auto* indices) { return static_cast<std::uint64_t>(indices[cursor_]); });
  return (index - tensor_.base) / positions_;
}

Splitter::Segments Splitter::split(std::uint64_t row) {
  Segments segments(grid_.columns);
  const std::uint64_t first = cursor_;
  const std::uint64_t last = lower_bound(tensor_, first, (row + 1) * positions_);
  cursor_ = last;
  if (first == last) return segments;
  if (grid_.columns == 1) {
    segments.front() = take_all(first, last, row);
    return segments;
  }
  for (std::uint64_t column = 0; column < grid_.columns; ++column) {
    builders_[column].start(grid_.layout(row * grid_.columns + column), tensor_.descriptor.row,
                            last - first, (last - first) / grid_.columns);
  }
  with_indices(tensor_, [&](const auto* indices) { deal(indices, first, last, row); });
  for (std::uint64_t column = 0; column < grid_.columns; ++column) {
    segments[column] = builders_[column].encode();
  }
  return segments;
}

std::optional<Segment> Splitter::take_all(std::uint64_t first, std::uint64_t last,
                                          std::uint64_t row) {
  const BlockLayout layout = grid_.layout(row);
  const std::uint64_t count = last - first;
  const std::size_t unit = tensor_.descriptor.row;
  const std::byte* const values = tensor_.values + first * tensor_.row_bytes();
  if (count * unit == layout.count) {
    // All elements of the chunk are named, so its values are a dense segment as they lie.
    return Segment{wire::Format::dense, Codec::raw, Bytes::borrowed({values, layout.bytes()})};
  }
  const bool are_few = 2 * count <= wire::positions_bytes(wire::Format::bitmap, layout, count);
  return with_indices(tensor_, [&](const auto* indices) -> std::optional<Segment> {
    using Index = std::remove_cvref_t<decltype(*indices)>;
    const auto shift = static_cast<Index>(0 - (row * positions_ + tensor_.base));
    if (unit == 1 && are_few) {
      return coordinates_of(indices + first, count, shift, values, layout.element_size);
    }
    SegmentBuilder& builder = builders_.front();
    builder.start(layout, unit, count, count);
    builder.add(indices + first, count, shift, values);
    return builder.encode();
  });
}

template <typename Index>
void Splitter::deal(const Index* indices, std::uint64_t first, std::uint64_t last,
                    std::uint64_t row) {
  const int shift = std::countr_zero(width_);
  const auto base = static_cast<Index>(tensor_.base);
  const std::size_t size = tensor_.row_bytes();
  while (first < last) {
    const std::uint64_t stripe = static_cast<std::uint64_t>(indices[first] - base) >> shift;
    const auto begin = static_cast<Index>((stripe << shift) + tensor_.base);
    const std::uint64_t behind = end_of_stripe(indices, first, last, begin);
    const std::uint64_t group = stripes_.group(stripe);
    const auto local = static_cast<Index>((group - row * groups_) << shift);
    builders_[stripes_.column(stripe, group)].add(indices + first, behind - first,
                                                  static_cast<Index>(local - begin),
                                                  tensor_.values + first * size);
    first = behind;
  }
}

// The first index that is not in the stripe that begins at `begin`.
template <typename Index>
std::uint64_t Splitter::end_of_stripe(const Index* indices, std::uint64_t first, std::uint64_t last,
                                      Index begin) const {
  const auto length = static_cast<Index>(width_);
  // The last index of a full stripe shows that it is full.
  const std::uint64_t full = first + width_;
  if (full <= last && indices[full - 1] - begin < length) return full;
  std::uint64_t behind = first + 1;
  while (behind < last && indices[behind] - begin < length) ++behind;
  return behind;
}

}  // namespace sparsewire::proto
