// The choice between sending blocks and sending single elements of a chunk.
#pragma once

#include <optional>

#include "wire/agreement.hpp"
#include "wire/segment.hpp"

namespace sparsewire::proto {

// The price of time on this link. Single elements take time to pick, add and place; blocks do not.
struct Costs {
  // The bytes that cross the link in the time that one element takes. This default suits links of
  // several Gbit/s; a communicator measures its own.
  double bytes_per_pick = 4;
};

// The costs by which formats are chosen. Rounding at random depends on the format, and the same
// seed must give the same bits in another run with other measured costs.
inline Costs costs_for(const wire::Descriptor& descriptor, const Costs& costs) {
  return descriptor.is_stochastic() ? Costs{} : costs;
}

// The smaller of the two formats by element.
inline wire::Format smaller_by_element(const BlockLayout& layout, std::size_t elements) {
  const auto size = [&](wire::Format format) {
    return wire::positions_bytes(format, layout, elements);
  };
  const bool is_few = size(wire::Format::coordinates) < size(wire::Format::bitmap);
  return is_few ? wire::Format::coordinates : wire::Format::bitmap;
}

// That format for `elements` of the chunk's elements, or none if it does not pay against
// `bytes_of_blocks`.
inline std::optional<wire::Format> format_by_element(const BlockLayout& layout,
                                                     std::size_t elements,
                                                     std::size_t bytes_of_blocks,
                                                     const Costs& costs) {
  const wire::Format format = smaller_by_element(layout, elements);
  const std::size_t bytes =
      wire::positions_bytes(format, layout, elements) + elements * layout.element_size;
  const double picking = static_cast<double>(elements) * costs.bytes_per_pick;
  if (static_cast<double>(bytes) + picking > static_cast<double>(bytes_of_blocks)) return {};
  return format;
}

}  // namespace sparsewire::proto
