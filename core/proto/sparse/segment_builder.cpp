// Encodes what a sparse vector holds of one chunk.
#include "proto/sparse/segment_builder.hpp"

#include <algorithm>

#include "wire/layout.hpp"

namespace sparsewire::proto {

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

// What went out with the last segment is not ours any more; what did not is used again.
void SegmentBuilder::reserve(std::size_t capacity) {
  if (!by_bits_ && locals_.size() < capacity) locals_.resize(capacity);
  const std::size_t size = head_ + capacity * value_bytes_;
  if (memory_ && room_ >= size) return;
  memory_ = Bytes::allocate(size);
  room_ = size;
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

// Nearly all is named: zeros in the gaps take less than a bitmap.
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

}  // namespace sparsewire::proto
