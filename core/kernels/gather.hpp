// Moves single elements between a dense array and their packed form, as a bitmap tells.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Copies the elements of `src` whose bit is set to `dst`, one behind another. Elements have 2, 4 or
// 8 bytes; the bitmap has `words` words.
void gather(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
            const std::uint64_t* bitmap);

// Copies the packed `src` to the elements of `dst` whose bit is set.
void scatter(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
             const std::uint64_t* bitmap);

}  // namespace sparsewire
