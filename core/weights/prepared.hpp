// A chunk's change made ready: decoded once beforehand, so that writing it is a scatter of bits, as
// fast as memory takes them. It holds new bits and no steps, so writing it twice changes nothing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weights/delta.hpp"

namespace sparsewire::weights {

// A prepared change stays in the memory of the process that made it. It is a count in 32 bits, that
// many positions in 32 bits each, and their new bits; or kAllPrepared and the new bits of all
// elements, where that is shorter. Both are as the machine has them.
inline constexpr std::uint32_t kAllPrepared = 0xffffffff;

// Appends to `out` what makes `base`, of `count` elements, the new version. False where the bytes
// are no code of so many elements. It takes 4 bytes and the element's width for each change.
bool prepare_delta(Elements elements, std::span<const std::byte> code, const std::byte* base,
                   std::size_t count, std::vector<std::byte>& out);

// The same of both versions, without a code.
void prepare_between(std::size_t width, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out);

// Writes a prepared change to the `count` elements of `weights`. False, and nothing written, where
// it is none of so many elements.
bool write_prepared(std::size_t width, std::span<const std::byte> prepared, std::byte* weights,
                    std::size_t count);

}  // namespace sparsewire::weights
