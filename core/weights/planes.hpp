// Elements byte plane by byte plane: all first bytes, then all second ones, each entropy coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire::weights {

// Bytes of a count or a size.
inline constexpr std::size_t kCountBytes = 4;

// Elements of a chunk: those at the positions, or all if these are null.
class Planes {
 public:
  Planes(const std::byte* elements, std::size_t width, std::size_t count,
         const std::uint32_t* positions)
      : elements_(elements), width_(width), count_(count), positions_(positions) {}

  // Appends the planes.
  void put(std::vector<std::byte>& out) const;

  // About how many bytes that takes, from a sample: mostly less than they are.
  std::size_t estimate() const;

 private:
  const std::byte* element(std::size_t index) const {
    return elements_ + width_ * (positions_ ? positions_[index] : index);
  }
  void fill(std::size_t byte, std::vector<std::uint8_t>& plane) const;

  const std::byte* elements_;
  std::size_t width_;
  std::size_t count_;
  const std::uint32_t* positions_;
};

// Reads the planes of `count` elements at the start of [in, end) into `values`; returns where they
// end, or null.
const std::byte* take_planes(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, std::vector<std::byte>& values);

}  // namespace sparsewire::weights
