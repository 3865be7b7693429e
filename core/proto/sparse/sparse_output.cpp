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
    } else if (grid_.columns == 1) {
      write_chunk(at++->second.piece, out);
    } else {
      write_row(at, out);
    }
  }
  return static_cast<std::uint64_t>(out.indices - indices);
}

template std::uint64_t SparseOutput::write_sparse(std::int32_t*, std::byte*) const;
template std::uint64_t SparseOutput::write_sparse(std::int64_t*, std::byte*) const;

template <typename Index>
void SparseOutput::write_chunk(const wire::Piece& piece, SparseCursor<Index>& out) const {
  const std::uint64_t base = piece.chunk * (grid_.chunk_elements / descriptor_.row);
  list_chunk(read(piece), grid_.layout(piece.chunk), descriptor_.dtype, descriptor_.row,
             static_cast<Index>(base), out);
}

// Takes all chunks of one row, and moves `at` behind them.
template <typename Index>
void SparseOutput::write_row(At& at, SparseCursor<Index>& out) const {
  const std::uint64_t row = at->first / grid_.columns;
  std::vector<Named> columns(grid_.columns);
  for (; at != stored_.end() && at->first / grid_.columns == row; ++at) {
    columns[at->first % grid_.columns] = list_named(read(at->second.piece), grid_.layout(at->first),
                                                    descriptor_.dtype, descriptor_.row);
  }
  RowMerger<Index>(std::move(columns), grid_, descriptor_.row).merge(row, out);
}

Contribution SparseOutput::read(const wire::Piece& piece) const {
  return *read_segment(kNoRank, {piece.format, piece.codec, piece.payload},
                       grid_.layout(piece.chunk));
}

template <typename Index>
void SparseOutput::write_range(const Stored& stored, SparseCursor<Index>& out) const {
  const PackedRead packed = read_packed_again(stored.piece, stored.range());
  const std::byte* locals = packed.view.locals.data();
  for (std::size_t chunk = 0; chunk < packed.view.chunks(); ++chunk) {
    const std::size_t count = packed.view.count_in(chunk);
    append_locals(locals, count,
                  static_cast<Index>((stored.piece.chunk + chunk) * grid_.chunk_elements), out);
    locals += 2 * count;
  }
  append_values(packed.view.values, out);
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
