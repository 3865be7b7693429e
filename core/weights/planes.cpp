// Planes are put together again element by element.
#include "weights/planes.hpp"

namespace sparsewire::weights {

const std::byte* take_planes(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, std::vector<std::byte>& values) {
  values.resize(count * width);
  std::vector<std::uint8_t> plane(count);
  for (std::size_t byte = 0; byte < width; ++byte) {
    if (static_cast<std::size_t>(end - in) < kCountBytes) return nullptr;
    const std::size_t size = load_32(in);
    in += kCountBytes;
    if (static_cast<std::size_t>(end - in) < size) return nullptr;
    if (!entropy_decode(in, size, 256, plane.data(), count)) return nullptr;
    in += size;
    for (std::size_t i = 0; i < count; ++i) {
      values[i * width + byte] = static_cast<std::byte>(plane[i]);
    }
  }
  return in;
}

}  // namespace sparsewire::weights
