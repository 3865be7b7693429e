// pack, unpack and clear: every run of equal bits is one memcpy or memset.
#include "kernels/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "base/bitmap.hpp"

namespace sparsewire {
namespace {

// Calls visit(offset, bytes) for every run of blocks whose bit equals `value`.
template <bool value, typename Visit>
void for_each_byte_range(std::size_t count, std::size_t element_size, std::size_t block,
                         const std::uint64_t* bitmap, Visit&& visit) {
  const std::size_t blocks = (count + block - 1) / block;
  for_each_run<value>(bitmap, blocks, [&](std::size_t first, std::size_t length) {
    const std::size_t begin = first * block;
    const std::size_t end = std::min(count, begin + length * block);
    visit(begin * element_size, (end - begin) * element_size);
  });
}

}  // namespace

std::size_t pack(std::byte* dst, const std::byte* src, std::size_t count, std::size_t element_size,
                 std::size_t block, const std::uint64_t* bitmap) {
  std::size_t done = 0;
  for_each_byte_range<true>(count, element_size, block, bitmap,
                            [&](std::size_t offset, std::size_t bytes) {
                              std::memcpy(dst + done, src + offset, bytes);
                              done += bytes;
                            });
  return done;
}

std::size_t unpack(std::byte* dst, const std::byte* src, std::size_t count,
                   std::size_t element_size, std::size_t block, const std::uint64_t* bitmap) {
  std::size_t done = 0;
  for_each_byte_range<true>(count, element_size, block, bitmap,
                            [&](std::size_t offset, std::size_t bytes) {
                              std::memcpy(dst + offset, src + done, bytes);
                              done += bytes;
                            });
  return done;
}

void clear(std::byte* dst, std::size_t count, std::size_t element_size, std::size_t block,
           const std::uint64_t* bitmap) {
  for_each_byte_range<false>(
      count, element_size, block, bitmap,
      [&](std::size_t offset, std::size_t bytes) { std::memset(dst + offset, 0, bytes); });
}

}  // namespace sparsewire
