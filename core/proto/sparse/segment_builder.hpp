// Collects the elements, or rows, of one chunk and encodes them in the cheapest format.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "base/bitmap.hpp"
#include "proto/stream/source.hpp"
#include "wire/layout.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

// A segment of single elements whose indices `shift` makes local: all that a chunk has, and few.
template <typename Index>
Segment coordinates_of(const Index* indices, std::size_t count, Index shift,
                       const std::byte* values, std::size_t value_bytes);

class SegmentBuilder {
 public:
  // Starts a chunk. `unit` is what one local index counts, in elements: 1, or a block. At most
  // `capacity` indices will come, and about as many as `expected`.
  void start(const BlockLayout& layout, std::size_t unit, std::size_t capacity,
             std::size_t expected);

  // Adds indices in ascending order, which `shift` makes local, and their values.
  template <typename Index>
  void add(const Index* indices, std::size_t count, Index shift, const std::byte* values);

  // What was collected, or nothing where that is nothing.
  std::optional<Segment> encode();

 private:
  Segment encode_bits();
  Segment encode_dense() const;
  void mark_locals();
  Segment encode_coordinates() const;
  void reserve(std::size_t capacity);

  BlockLayout layout_{};
  std::size_t value_bytes_ = 0;
  std::size_t places_ = 0;  // that the chunk has for indices
  std::size_t head_ = 0;    // bytes of a bitmap over them
  bool by_bits_ = false;    // a bitmap and the values behind it are written as they come
  std::size_t count_ = 0;
  wire::ElementBitmap bits_;
  std::vector<std::uint16_t> locals_;
  std::shared_ptr<std::byte[]> memory_;  // room for the bitmap, then the values
  std::size_t room_ = 0;                 // bytes of it
};

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

}  // namespace sparsewire::proto
