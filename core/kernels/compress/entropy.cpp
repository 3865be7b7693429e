// Cuts symbols into blocks, each with frequencies of its own.
#include "kernels/compress/entropy.hpp"

#include <algorithm>

#include "base/types.hpp"
#include "kernels/compress/entropy_block.hpp"

namespace sparsewire {

std::size_t entropy_bound(std::size_t count) {
  return count + ceil_div(count, kEntropyBlock) * entropy_block_bound(0);
}

std::optional<std::size_t> entropy_encode(const std::uint8_t* symbols, std::size_t count,
                                          std::size_t alphabet, std::byte* out) {
  std::byte* at = out;
  for (std::size_t first = 0; first < count; first += kEntropyBlock) {
    at = encode_block(symbols + first, std::min(kEntropyBlock, count - first), alphabet, at);
    if (!at) return {};
  }
  return static_cast<std::size_t>(at - out);
}

bool entropy_decode(const std::byte* in, std::size_t size, std::size_t alphabet,
                    std::uint8_t* symbols, std::size_t count) {
  const std::byte* const end = in + size;
  for (std::size_t first = 0; first < count; first += kEntropyBlock) {
    in = decode_block(in, end, alphabet, symbols + first, std::min(kEntropyBlock, count - first));
    if (!in) return false;
  }
  return in == end;
}

}  // namespace sparsewire
