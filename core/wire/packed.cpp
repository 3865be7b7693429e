// Decodes packed coordinates.
#include "wire/packed.hpp"

#include <cstdint>

#include "wire/codec.hpp"
#include "wire/little_endian.hpp"
#include "wire/locals.hpp"

namespace sparsewire::wire {
namespace {

std::uint16_t local_at(std::span<const std::byte> locals, std::size_t i) {
  return load<std::uint16_t>(locals.data() + 2 * i);
}

Status check_locals(const PackedView& view, std::size_t chunk_elements, std::size_t last_elements) {
  std::size_t first = 0;
  for (std::size_t chunk = 0; chunk < view.chunks(); ++chunk) {
    const std::size_t count = view.count_in(chunk);
    const std::size_t limit = chunk + 1 == view.chunks() ? last_elements : chunk_elements;
    if (count > view.count - first) return protocol_error("packed: its counts are too large");
    if (!ascend(view.locals.data() + 2 * first, count)) {
      return protocol_error("packed: its indices do not ascend");
    }
    first += count;
    if (count != 0 && local_at(view.locals, first - 1) >= limit) {
      return protocol_error("packed: an index is out of range");
    }
  }
  return first == view.count ? Status{} : protocol_error("packed: its counts are too small");
}

}  // namespace

std::size_t PackedView::count_in(std::size_t chunk) const {
  return load<std::uint32_t>(counts.data() + 4 * chunk);
}

std::size_t packed_positions_bytes(std::size_t chunks, std::size_t count) {
  return 4 * chunks + 2 * count;
}

PackedView view_packed(Codec codec, std::span<const std::byte> payload, std::size_t chunks) {
  PackedView view{.counts = payload.first(4 * chunks), .codec = codec};
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) view.count += view.count_in(chunk);
  const std::size_t head = packed_positions_bytes(chunks, view.count);
  if (head > payload.size()) return view;
  view.locals = payload.subspan(4 * chunks, 2 * view.count);
  view.values = payload.subspan(head);
  return view;
}

Result<PackedView> decode_packed(Codec codec, std::span<const std::byte> payload,
                                 std::size_t chunks, std::size_t chunk_elements,
                                 const BlockLayout& last) {
  if (payload.size() < 4 * chunks) return protocol_error("packed: shorter than its counts");
  PackedView view = view_packed(codec, payload, chunks);
  if (view.count > chunks * chunk_elements ||
      payload.size() != packed_positions_bytes(chunks, view.count) +
                            values_bytes(codec, last.element_size, view.count)) {
    return protocol_error("packed: its length does not fit its counts");
  }
  if (Status error = check_values(codec, last.element_size, view.values, view.count)) {
    return *std::move(error);
  }
  if (Status error = check_locals(view, chunk_elements, last.count)) return *std::move(error);
  return view;
}

}  // namespace sparsewire::wire
