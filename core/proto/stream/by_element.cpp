// Compares the formats by what they cost.
#include "proto/stream/by_element.hpp"

namespace sparsewire::proto {

wire::Format smaller_by_element(const BlockLayout& layout, std::size_t elements) {
  const auto size = [&](wire::Format format) {
    return wire::positions_bytes(format, layout, elements);
  };
  const bool is_few = size(wire::Format::coordinates) < size(wire::Format::bitmap);
  return is_few ? wire::Format::coordinates : wire::Format::bitmap;
}

std::optional<wire::Format> format_by_element(const BlockLayout& layout, std::size_t elements,
                                              std::size_t bytes_of_blocks, const Costs& costs) {
  const wire::Format format = smaller_by_element(layout, elements);
  const std::size_t bytes =
      wire::positions_bytes(format, layout, elements) + elements * layout.element_size;
  const double picking = static_cast<double>(elements) * costs.bytes_per_pick;
  if (static_cast<double>(bytes) + picking > static_cast<double>(bytes_of_blocks)) return {};
  return format;
}

}  // namespace sparsewire::proto
