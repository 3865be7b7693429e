// Compares the sizes of the formats.
#include "proto/stream/by_element.hpp"

namespace sparsewire::proto {
namespace {

// Single elements cost more time to pick, add and place than blocks do, so they must save this
// many parts of the bytes: on a fast link the time would not come back otherwise.
constexpr std::size_t kSavedParts = 2;

}  // namespace

std::optional<wire::Format> format_by_element(const BlockLayout& layout, std::size_t elements,
                                              std::size_t bytes_of_blocks) {
  const auto size = [&](wire::Format format) {
    return wire::positions_bytes(format, layout, elements) + elements * layout.element_size;
  };
  const bool is_few = size(wire::Format::coordinates) < size(wire::Format::bitmap);
  const wire::Format format = is_few ? wire::Format::coordinates : wire::Format::bitmap;
  if (size(format) * kSavedParts > bytes_of_blocks) return {};
  return format;
}

}  // namespace sparsewire::proto
