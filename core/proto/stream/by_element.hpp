// The choice between sending blocks and sending single elements of a chunk.
#pragma once

#include <optional>

#include "wire/segment.hpp"

namespace sparsewire::proto {

// The smaller format by element for so many of the chunk's elements, or none where it does not pay
// against `bytes_of_blocks`.
std::optional<wire::Format> format_by_element(const BlockLayout& layout, std::size_t elements,
                                              std::size_t bytes_of_blocks);

}  // namespace sparsewire::proto
