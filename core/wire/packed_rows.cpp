// Drops and restores the indices that follow from the first index of a row.
#include "wire/packed_rows.hpp"

#include <cstring>

namespace sparsewire::wire {
namespace {

// Every value has at least so many bits.
constexpr std::size_t kLeastValueBits = 2;

bool are_whole_rows(const PackedView& view, std::size_t unit) {
  for (std::size_t chunk = 0; chunk < view.chunks(); ++chunk) {
    if (view.count_in(chunk) % unit != 0) return false;
  }
  for (std::size_t i = 0; i < view.count; ++i) {
    const std::size_t within = i % unit;
    const std::size_t first = local_at(view.locals.data(), i - within);
    if (local_at(view.locals.data(), i) != first + within) return false;
  }
  return true;
}

// A piece of `format` with the counts, `indices` indices written by `fill`, and the values.
template <typename Fill>
Piece piece_of(const Piece& piece, Format format, std::span<const std::byte> counts,
               std::size_t indices, std::span<const std::byte> values, Fill&& fill) {
  const std::size_t head = counts.size() + 2 * indices;
  auto owner = Bytes::allocate(head + values.size());
  std::memcpy(owner.get(), counts.data(), counts.size());
  fill(owner.get() + counts.size());
  if (!values.empty()) std::memcpy(owner.get() + head, values.data(), values.size());
  return {piece.chunk, format, piece.codec, Bytes::shared(std::move(owner), head + values.size())};
}

}  // namespace

Piece with_rows(const Piece& packed, std::size_t chunks, std::size_t unit) {
  // A piece that is passed on from another rank may be malformed; its receiver refuses it.
  if (packed.payload.size() < 4 * chunks) return packed;
  const PackedView view = view_packed(packed.codec, packed.payload.view(), chunks);
  if (view.locals.size() != 2 * view.count || !are_whole_rows(view, unit)) return packed;
  const std::size_t rows = view.count / unit;
  return piece_of(packed, Format::packed_rows, view.counts, rows, view.values,
                  [&](std::byte* firsts) {
                    for (std::size_t row = 0; row < rows; ++row) {
                      store(firsts + 2 * row, local_at(view.locals.data(), row * unit));
                    }
                  });
}

Result<Piece> without_rows(const Piece& rows, std::size_t chunks, std::size_t unit) {
  const std::span<const std::byte> payload = rows.payload.view();
  if (payload.size() < 4 * chunks) return protocol_error("packed: shorter than its counts");
  std::size_t count = 0;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const auto here = load<std::uint32_t>(payload.data() + 4 * chunk);
    if (here % unit != 0) return protocol_error("packed: a row is not whole");
    count += here;
  }
  const std::size_t head = 4 * chunks + 2 * (count / unit);
  if (payload.size() < head + count * kLeastValueBits / 8) {
    return protocol_error("packed: its length does not fit its counts");
  }
  const std::byte* const firsts = payload.data() + 4 * chunks;
  for (std::size_t row = 0; row < count / unit; ++row) {
    if (local_at(firsts, row) + unit > kMaxChunkElements) {
      return protocol_error("packed: an index is out of range");
    }
  }
  return piece_of(rows, Format::packed, payload.first(4 * chunks), count, payload.subspan(head),
                  [&](std::byte* locals) {
                    for (std::size_t i = 0; i < count; ++i) {
                      const std::size_t local = local_at(firsts, i / unit) + i % unit;
                      store(locals + 2 * i, static_cast<std::uint16_t>(local));
                    }
                  });
}

}  // namespace sparsewire::wire
