// What the code of a chunk says, read as a whole and checked before anything is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weights/delta.hpp"

namespace sparsewire::weights {

struct Changes {
  Form form;
  std::vector<std::uint32_t> positions;  // of steps and values: ascending
  // As wide as the elements, one after another: steps in two's complement; or new bits, of the
  // changed elements, or of all if the form is whole.
  std::vector<std::byte> payload;
};

// None where the bytes are no code of so many elements. Whatever they are, memory stays in
// proportion to the changed elements.
std::optional<Changes> read_changes(Elements elements, std::span<const std::byte> code,
                                    std::size_t count);

}  // namespace sparsewire::weights
