// Keeps checked pieces, and reads them again when they are wanted.
#include "proto/sparse/sparse_output.hpp"

#include <cstring>

#include "proto/sparse/dense_output.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::proto {

Status SparseOutput::write(std::uint64_t chunk, const Segment& segment) {
  const auto view = wire::decode_segment(segment.format, segment.codec, segment.payload.view(),
                                         grid_.layout(chunk));
  if (!view) return view.error();
  if (descriptor_.row != 1 && wire::is_by_element(segment.format)) {
    return protocol_error("result: single elements of rows");
  }
  elements_ += view->count;
  stored_.insert_or_assign(
      chunk, Stored{{chunk, segment.format, segment.codec, segment.payload.owned()}, chunk + 1});
  return {};
}

Status SparseOutput::write_packed(const wire::Piece& piece, const ChunkRange& range) {
  const auto packed = read_packed(piece, grid_, range);
  if (!packed) return packed.error();
  elements_ += packed->view.count;
  stored_.insert_or_assign(piece.chunk, Stored{piece, range.end});
  return {};
}

template <typename Index>
std::uint64_t SparseOutput::write_sparse(Index* indices, std::byte* values) const {
  SparseCursor<Index> out{indices, values};
  for (At at = stored_.begin(); at != stored_.end();) {
    if (at->second.piece.format == wire::Format::packed) {
      write_range(at++->second, out);
    } else {
      write_row(at, out);
    }
  }
  return static_cast<std::uint64_t>(out.indices - indices);
}

template std::uint64_t SparseOutput::write_sparse(std::int32_t*, std::byte*) const;
template std::uint64_t SparseOutput::write_sparse(std::int64_t*, std::byte*) const;

// Takes all chunks of one row, and moves `at` behind them.
template <typename Index>
void SparseOutput::write_row(At& at, SparseCursor<Index>& out) const {
  const std::uint64_t row = at->first / grid_.columns;
  std::vector<Named> columns(grid_.columns);
  for (; at != stored_.end() && at->first / grid_.columns == row; ++at) {
    const wire::Piece& piece = at->second.piece;
    const BlockLayout layout = grid_.layout(at->first);
    columns[at->first % grid_.columns] =
        list_named(*read_segment(kNoRank, {piece.format, piece.codec, piece.payload}, layout),
                   layout, descriptor_.dtype, descriptor_.row);
  }
  RowMerger<Index>(std::move(columns), grid_, descriptor_.row).merge(row, out);
}

template <typename Index>
void SparseOutput::write_range(const Stored& stored, SparseCursor<Index>& out) const {
  const PackedRead packed = read_packed_again(stored.piece, stored.range());
  const std::byte* locals = packed.view.locals.data();
  for (std::size_t chunk = 0; chunk < packed.view.chunks(); ++chunk) {
    const auto base = static_cast<Index>((stored.piece.chunk + chunk) * grid_.chunk_elements);
    const std::size_t count = packed.view.count_in(chunk);
    for (std::size_t i = 0; i < count; ++i) {
      out.indices[i] = base + static_cast<Index>(wire::load<std::uint16_t>(locals + 2 * i));
    }
    out.indices += count;
    locals += 2 * count;
  }
  std::memcpy(out.values, packed.view.values.data(), packed.view.values.size());
  out.values += packed.view.values.size();
}

void SparseOutput::write_dense(std::byte* target) const {
  DenseOutput output(descriptor_, grid_, target);
  for (const auto& [chunk, stored] : stored_) {
    const wire::Piece& piece = stored.piece;
    if (piece.format == wire::Format::packed) {
      output.write_packed(piece, stored.range());
    } else {
      output.write(chunk, {piece.format, piece.codec, piece.payload});
    }
  }
  output.finish();
}

}  // namespace sparsewire::proto
