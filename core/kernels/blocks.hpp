// Moves the blocks that a bitmap names between a dense array and their packed form. Plain memcpy
// and memset: the C library already picks the best instructions for them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// In all functions here an array has `count` elements of `element_size` bytes, cut into blocks of
// `block` elements; the last block may be partial. Bit i of `bitmap` stands for block i.

// Copies the set blocks of the array `src` to `dst`, one after another; returns the bytes written.
std::size_t pack(std::byte* dst, const std::byte* src, std::size_t count, std::size_t element_size,
                 std::size_t block, const std::uint64_t* bitmap);

// Copies the packed `src` to the set blocks of the array `dst`; returns the bytes read.
std::size_t unpack(std::byte* dst, const std::byte* src, std::size_t count,
                   std::size_t element_size, std::size_t block, const std::uint64_t* bitmap);

// Fills the blocks of `dst` whose bit is not set with zero bytes.
void clear(std::byte* dst, std::size_t count, std::size_t element_size, std::size_t block,
           const std::uint64_t* bitmap);

}  // namespace sparsewire
