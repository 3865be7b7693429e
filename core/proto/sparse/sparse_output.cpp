// Keeps checked pieces, and reads them again when they are wanted, or can be listed.
#include "proto/sparse/sparse_output.hpp"

#include <cstring>

#include "proto/sparse/dense_output.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {

Status SparseOutput::write(std::uint64_t chunk, const Segment& segment) {
  const auto view = wire::decode_segment(segment.format, segment.codec, segment.payload.view(),
                                         grid_.layout(chunk));
  if (!view) return view.error();
  if (descriptor_.row != 1 && wire::is_by_element(segment.format)) {
    return protocol_error("result: single elements of rows");
  }
  keep({{chunk, segment.format, segment.codec, segment.payload.owned()}, chunk + 1, view->count});
  return {};
}

Status SparseOutput::write_packed(const wire::Piece& piece, const ChunkRange& range) {
  const auto packed = read_packed(piece, grid_, range);
  if (!packed) return packed.error();
  keep({piece, range.end, packed->view.count});
  return {};
}

void SparseOutput::keep(Stored stored) {
  elements_kept_ += stored.elements;
  kept_.insert_or_assign(stored.piece.chunk, std::move(stored));
}

void SparseOutput::pass(const ChunkRange& range) {
  if (list_.room() == 0) return;
  passed_.emplace(range.first, range.end);
  for (auto at = passed_.begin(); at != passed_.end() && at->first == listed_;) {
    if (!list_until(at->second)) return;
    listed_ = at->second;
    at = passed_.erase(at);
  }
}

bool SparseOutput::list_until(std::uint64_t end) {
  const auto behind = kept_.lower_bound(end);
  std::uint64_t elements = 0;
  for (auto at = kept_.begin(); at != behind; ++at) elements += at->second.elements;
  if (list_.count() + elements / descriptor_.row > list_.room()) return false;
  list_.append([&](auto& out) { write_until(behind, out); });
  kept_.erase(kept_.begin(), behind);
  elements_kept_ -= elements;
  return true;
}

SparseList SparseOutput::take() {
  list_.reserve(named());
  list_until(grid_.chunks());
  return std::move(list_);
}

template <typename Index>
void SparseOutput::write_until(Kept::const_iterator end, SparseCursor<Index>& out) const {
  for (auto at = kept_.begin(); at != end;) {
    if (at->second.piece.format == wire::Format::packed) {
      write_range(at++->second, out);
    } else if (grid_.columns == 1) {
      write_chunk(at++->second.piece, out);
    } else {
      write_row(at, out);
    }
  }
}

template <typename Index>
void SparseOutput::write_chunk(const wire::Piece& piece, SparseCursor<Index>& out) const {
  const std::uint64_t base = piece.chunk * (grid_.chunk_elements / descriptor_.row);
  list_chunk(read(piece), grid_.layout(piece.chunk), descriptor_.dtype, descriptor_.row,
             static_cast<Index>(base), out);
}

// Takes all chunks of one row, and moves `at` behind them.
template <typename Index>
void SparseOutput::write_row(Kept::const_iterator& at, SparseCursor<Index>& out) const {
  const std::uint64_t row = at->first / grid_.columns;
  std::vector<Named> columns(grid_.columns);
  for (; at != kept_.end() && at->first / grid_.columns == row; ++at) {
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
  for (const auto& [chunk, stored] : kept_) {
    const wire::Piece& piece = stored.piece;
    if (piece.format == wire::Format::packed) {
      output.write_packed(piece, stored.range());
    } else {
      output.write(chunk, {piece.format, piece.codec, piece.payload});
    }
  }
  output.finish();
  list_.scatter(target);
}

}  // namespace sparsewire::proto
