// Planes are taken apart and put together again one at a time.
#include "weights/planes.hpp"

#include "compress/entropy.hpp"
#include "kernels/bit_fields.hpp"
#include "weights/elements.hpp"
#include "weights/sample.hpp"

namespace sparsewire::weights {
namespace {

constexpr std::size_t kByteValues = 256;

}  // namespace

void Planes::fill(std::size_t byte, std::vector<std::uint8_t>& plane) const {
  if (positions_) {
    for (std::size_t i = 0; i < count_; ++i) plane[i] = static_cast<std::uint8_t>(element(i)[byte]);
    return;
  }
  const auto bits = static_cast<unsigned>(8 * byte);
  for_width(width_, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count_; ++i) {
      plane[i] = static_cast<std::uint8_t>(load<T>(elements_, i) >> bits);
    }
  });
}

void Planes::put(std::vector<std::byte>& out) const {
  std::vector<std::uint8_t> plane(count_);
  for (std::size_t byte = 0; byte < width_; ++byte) {
    fill(byte, plane);
    const std::size_t begin = out.size();
    out.resize(begin + kCountBytes + entropy_bound(count_));
    const std::size_t size =
        *entropy_encode(plane.data(), count_, kByteValues, out.data() + begin + kCountBytes);
    store_32(out.data() + begin, static_cast<std::uint32_t>(size));
    out.resize(begin + kCountBytes + size);
  }
}

std::size_t Planes::estimate() const {
  std::size_t total = 0;
  for (std::size_t byte = 0; byte < width_; ++byte) {
    Sample plane(count_);
    for (std::size_t i = 0; i < plane.size(); ++i) {
      plane.add(static_cast<std::uint8_t>(element(plane.place(i))[byte]));
    }
    total += plane.bytes_of_all(0);
  }
  return total;
}

const std::byte* take_planes(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, std::vector<std::byte>& values) {
  values.resize(count * width);
  std::vector<std::uint8_t> plane(count);
  for (std::size_t byte = 0; byte < width; ++byte) {
    if (static_cast<std::size_t>(end - in) < kCountBytes) return nullptr;
    const std::size_t size = load_32(in);
    in += kCountBytes;
    if (static_cast<std::size_t>(end - in) < size) return nullptr;
    if (!entropy_decode(in, size, kByteValues, plane.data(), count)) return nullptr;
    in += size;
    for (std::size_t i = 0; i < count; ++i) {
      values[i * width + byte] = static_cast<std::byte>(plane[i]);
    }
  }
  return in;
}

}  // namespace sparsewire::weights
