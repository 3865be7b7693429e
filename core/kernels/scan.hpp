// scan: one bit per block that is not zero. A block is OR-ed together in strides of up to 1024
// bytes and left at the first stride that is not zero. Shorter strides read less of dense data, but
// then mixed data takes up to twice as long, because its exits cannot be predicted.
#pragma once

#include "kernels/elements.hpp"
#include "kernels/kernels.hpp"

namespace sparsewire {
namespace {

inline constexpr std::size_t kMinStride = 32;  // The smallest block: 16 elements of two bytes.
inline constexpr std::size_t kMaxStride = 1024;

// Every bit but the sign of each element; integers have no sign to leave out.
inline std::uint64_t value_mask(DType dtype) {
  if (!is_floating(dtype)) return ~std::uint64_t{0};
  switch (element_size(dtype)) {
    case 2:
      return 0x7fff7fff7fff7fffu;
    case 4:
      return 0x7fffffff7fffffffu;
    default:
      return 0x7fffffffffffffffu;
  }
}

template <std::size_t stride>
inline std::uint64_t merge(const std::byte* data) {
  const auto* const words = reinterpret_cast<const Unaligned<std::uint64_t>*>(data);
  std::uint64_t merged = 0;
  for (std::size_t i = 0; i < stride / 8; ++i) merged |= words[i].value;
  return merged;
}

// OR of the words of a whole block, or of the part of it that showed that it is not zero.
template <std::size_t stride>
inline std::uint64_t merge_block(const std::byte* data, std::size_t bytes, std::uint64_t mask) {
  std::uint64_t merged = 0;
  for (std::size_t offset = 0; offset < bytes; offset += stride) {
    merged |= merge<stride>(data + offset);
    if (merged & mask) break;
  }
  return merged;
}

// The last block, where it is partial: any number of elements.
inline std::uint64_t merge_tail(const std::byte* data, std::size_t bytes) {
  std::uint64_t merged = 0;
  for (; bytes >= 8; data += 8, bytes -= 8) merged |= merge<8>(data);
  std::uint64_t rest = 0;
  __builtin_memcpy(&rest, data, bytes);
  return merged | rest;
}

template <std::size_t stride>
ScanResult scan_blocks(const std::byte* data, std::size_t bytes, std::size_t block_bytes,
                       std::uint64_t mask, std::uint64_t* bitmap) {
  const std::size_t whole = bytes / block_bytes;
  const std::size_t tail = bytes % block_bytes;
  const std::size_t blocks = whole + (tail != 0);
  ScanResult result{0, false};
  for (std::size_t first = 0; first < blocks; first += 64) {
    const std::size_t last = blocks - first < 64 ? blocks : first + 64;
    std::uint64_t word = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::byte* const block = data + i * block_bytes;
      const std::uint64_t merged =
          i < whole ? merge_block<stride>(block, block_bytes, mask) : merge_tail(block, tail);
      const bool nonzero = merged & mask;
      word |= std::uint64_t{nonzero} << (i - first);
      result.negative_zeros |= !nonzero & (merged != 0);
    }
    bitmap[first / 64] = word;
    result.nonzero += static_cast<std::size_t>(__builtin_popcountll(word));
  }
  return result;
}

// The longest stride that divides a block.
template <std::size_t stride>
ScanResult scan_strides(const std::byte* data, std::size_t bytes, std::size_t block_bytes,
                        std::uint64_t mask, std::uint64_t* bitmap) {
  if constexpr (stride < kMaxStride) {
    if (block_bytes > stride) {
      return scan_strides<2 * stride>(data, bytes, block_bytes, mask, bitmap);
    }
  }
  return scan_blocks<stride>(data, bytes, block_bytes, mask, bitmap);
}

ScanResult scan(const std::byte* data, std::size_t count, DType dtype, std::size_t block,
                std::uint64_t* bitmap) {
  const std::size_t size = element_size(dtype);
  return scan_strides<kMinStride>(data, count * size, block * size, value_mask(dtype), bitmap);
}

}  // namespace
}  // namespace sparsewire
