// One chunk of weights as the difference to its base: positions of the elements that changed, and
// their new bits. It is lossless for every bit pattern, NaN and -0 included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weights/elements.hpp"

namespace sparsewire::weights {

// Elements of a chunk at most.
inline constexpr std::size_t kDeltaChunk = std::size_t{1} << 20;

// How a chunk is coded, which is its first byte; then
//   same, nothing: no element has changed;
//   steps: the changes' number in 32 bits, their gaps, and by how many representable numbers each
//      value moved, less one, its sign in the low bit (weights/numbers.hpp);
//   values: the changes' number, their gaps, and the planes of the new bits;
//   whole: the planes of all elements.
// The planes are all first bytes of the elements, then all second ones, and so on. A plane is the
// size of its entropy code in 32 bits, and that code.
enum class Form : std::uint8_t { same, steps, values, whole };
inline constexpr std::uint8_t kFormCount = 4;

struct Encoded {
  Form form;
  std::size_t changed;  // elements whose bits differ
};

// Appends the code of `fresh` over `base`, of which both have `count` elements, to `out`: the
// shortest of all forms, but for some that cannot be.
Encoded encode_delta(Elements elements, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out);

// Makes the base in `weights` the new version in place. False where the bytes are no code of so
// many elements: then no weight has changed. Memory is in proportion to the changed elements.
bool apply_delta(Elements elements, std::span<const std::byte> code, std::byte* weights,
                 std::size_t count);

// Whether the bytes are a code of so many elements, as far as it takes to apply them.
bool is_delta(Elements elements, std::span<const std::byte> code, std::size_t count);

}  // namespace sparsewire::weights
