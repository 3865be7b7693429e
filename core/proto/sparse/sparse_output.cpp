// Keeps checked pieces, and reads them again once they are asked for or can be listed. Indices are
// written by vector instructions, and values as they lie in the segment.
#include "proto/sparse/sparse_output.hpp"

#include <cstring>
#include <vector>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"
#include "proto/sparse/dense_output.hpp"
#include "proto/sparse/stripes.hpp"

namespace sparsewire::proto {
namespace {

template <typename Index>
void append_values(std::span<const std::byte> values, SparseCursor<Index>& out) {
  std::memcpy(out.values, values.data(), values.size());
  out.values += values.size();
}

template <typename Index>
void append_bits(const std::uint64_t* bitmap, std::size_t count, std::uint64_t base,
                 SparseCursor<Index>& out) {
  const std::size_t words = bitmap_words(count);
  if constexpr (sizeof(Index) == 4) {
    out.indices +=
        kernels().list_bits_32(bitmap, words, static_cast<std::int32_t>(base), out.indices);
  } else {
    out.indices +=
        kernels().list_bits_64(bitmap, words, static_cast<std::int64_t>(base), out.indices);
  }
}

// Takes the elements that are not zero out of whole blocks.
template <typename Index>
void append_nonzeros(const Contribution& contribution, const BlockLayout& layout, DType dtype,
                     std::uint64_t base, SparseCursor<Index>& out) {
  const std::byte* values = contribution.values.values.data();
  std::shared_ptr<std::byte[]> memory;
  if (contribution.values.format != wire::Format::dense) {
    memory = Bytes::allocate(layout.bytes());
    write_chunk(contribution, layout, memory.get());
    values = memory.get();
  }
  wire::ElementBitmap elements{};
  const ScanResult found = kernels().mark(values, layout.count, dtype, elements.data());
  append_bits(elements.data(), layout.count, base, out);
  kernels().gather(out.values, values, layout.element_size, bitmap_words(layout.count),
                   elements.data());
  out.values += found.nonzero * layout.element_size;
}

// Appends the rows of a dense chunk. It names every row; rows of zeros are left out.
template <typename Index>
void append_dense_rows(std::span<const std::byte> values, std::size_t row_bytes, std::uint64_t base,
                       SparseCursor<Index>& out) {
  const std::vector<std::byte> zeros(row_bytes);
  for (; !values.empty(); values = values.subspan(row_bytes), ++base) {
    if (std::memcmp(values.data(), zeros.data(), row_bytes) == 0) continue;
    *out.indices++ = static_cast<Index>(base);
    append_values(values.first(row_bytes), out);
  }
}

// Appends `count` indices: `base` plus a number of 16 bits each.
template <typename Index>
void append_locals(const std::byte* locals, std::size_t count, std::uint64_t base,
                   SparseCursor<Index>& out) {
  if constexpr (sizeof(Index) == 4) {
    kernels().list_locals_32(locals, count, static_cast<std::int32_t>(base), out.indices);
  } else {
    kernels().list_locals_64(locals, count, static_cast<std::int64_t>(base), out.indices);
  }
  out.indices += count;
}

// Appends the indices that one chunk names, if its values lie packed and without zeros; else false,
// without effect. `base` is the index of its first element, or row; `row` is in elements.
template <typename Index>
bool append_indices(const wire::SegmentView& view, const BlockLayout& layout, std::uint32_t row,
                    std::uint64_t base, SparseCursor<Index>& out) {
  if (view.format == wire::Format::coordinates) {
    append_locals(view.positions.data(), view.count, base, out);
  } else if (view.format == wire::Format::bitmap) {
    append_bits(wire::elements_of(view, layout).data(), layout.count, base, out);
  } else if (view.format == wire::Format::blocks && row != 1) {
    append_bits(view.bitmap.data(), layout.blocks(), base, out);
  } else {
    return false;
  }
  return true;
}

// Appends the non-zero elements, or rows, of a chunk that names others, too.
template <typename Index>
void append_thinned(const Contribution& contribution, const BlockLayout& layout, DType dtype,
                    std::uint32_t row, std::uint64_t base, SparseCursor<Index>& out) {
  if (row == 1) return append_nonzeros(contribution, layout, dtype, base, out);
  append_dense_rows(contribution.values.values, layout.block_bytes(), base, out);
}

// The rest of one column of striped chunks: indices that count from the chunk's begin, and their
// values.
struct Column {
  const std::int32_t* locals = nullptr;
  const std::int32_t* end = nullptr;
  const std::byte* values = nullptr;
  std::unique_ptr<std::int32_t[]> indices;  // these three hold the above
  Contribution memory;
  std::shared_ptr<std::byte[]> thinned;
};

// Appends the elements that a column names below the local index `end`. `shift` makes an index of a
// local one. A `size` of 0 means that the size is known only at run time. Stripes hold few
// elements, so they are copied by hand.
template <std::size_t size, typename Index>
void append_stripe(Column& column, std::size_t value_bytes, Index end, Index shift,
                   SparseCursor<Index>& out) {
  const std::size_t bytes = size != 0 ? size : value_bytes;
  const std::int32_t* local = column.locals;
  const std::int32_t* const behind = column.end;
  const std::byte* from = column.values;
  SparseCursor<Index> to = out;
  for (; local != behind && *local < end; ++local) {
    *to.indices++ = static_cast<Index>(*local) + shift;
    std::memcpy(to.values, from, bytes);
    to.values += bytes;
    from += bytes;
  }
  column.locals = local;
  column.values = from;
  out = to;
}

// Appends row number `number` of striped chunks, a column each, in the order of the whole vector.
template <std::size_t size, typename Index>
void append_columns(std::vector<Column>& columns, const ChunkGrid& grid, std::uint32_t row,
                    std::uint64_t number, SparseCursor<Index>& out) {
  const Stripes stripes(grid);
  const auto width = static_cast<Index>(grid.block / row);  // of a stripe, in indices
  const std::uint64_t begin = number * (grid.chunk_elements / grid.block);
  const std::uint64_t groups = grid.layout(number * grid.columns).blocks();
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t turn = stripes.turn(begin + group);
    const Index local = static_cast<Index>(group) * width;
    const std::uint64_t first = (begin + group) * grid.columns;
    for (std::uint64_t i = 0; i < grid.columns; ++i) {
      append_stripe<size>(columns[stripes.wrapped(i + turn)], row * grid.element_size,
                          local + width, static_cast<Index>(first + i) * width - local, out);
    }
  }
}

}  // namespace

void SparseList::reserve(std::uint64_t room) {
  if (indices_ && room <= room_) return;
  Memory indices = allocate_(room * index_bytes());
  Memory values = allocate_(room * row_bytes_);
  if (count_ != 0) {
    std::memcpy(indices.get(), indices_.get(), count_ * index_bytes());
    std::memcpy(values.get(), values_.get(), count_ * row_bytes_);
  }
  indices_ = std::move(indices);
  values_ = std::move(values);
  room_ = room;
}

void SparseList::scatter(std::byte* out) const {
  is_wide_ ? scatter_as<std::int64_t>(out) : scatter_as<std::int32_t>(out);
}

template <typename Index>
void SparseList::scatter_as(std::byte* out) const {
  const auto* const indices = reinterpret_cast<const Index*>(indices_.get());
  for (std::uint64_t i = 0; i < count_; ++i) {
    std::memcpy(out + static_cast<std::uint64_t>(indices[i]) * row_bytes_,
                values_.get() + i * row_bytes_, row_bytes_);
  }
}

// --- Results ---

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
  note(range);
  while (const auto batch = claim()) {
    list(*batch);
    settle();
  }
}

void SparseOutput::note(const ChunkRange& range) {
  if (list_.room() != 0) passed_.emplace(range.first, range.end);
}

std::optional<SparseOutput::Kept> SparseOutput::claim() {
  const auto next = passed_.begin();
  if (is_listing_ || next == passed_.end() || next->first != listed_) return {};
  const auto behind = kept_.lower_bound(next->second);
  std::uint64_t elements = 0;
  for (auto at = kept_.begin(); at != behind; ++at) elements += at->second.elements;
  if (list_.count() + elements / descriptor_.row > list_.room()) return {};
  listed_ = next->second;
  passed_.erase(next);
  is_listing_ = true;
  return extract_until(behind);
}

SparseOutput::Kept SparseOutput::extract_until(Kept::iterator end) {
  Kept batch;
  while (kept_.begin() != end) {
    elements_kept_ -= kept_.begin()->second.elements;
    batch.insert(batch.end(), kept_.extract(kept_.begin()));
  }
  return batch;
}

void SparseOutput::list(const Kept& batch) {
  list_.append([&](auto& out) { append_all(batch, out); });
}

SparseList SparseOutput::take() {
  list_.reserve(named());
  list(extract_until(kept_.end()));
  return list_;
}

template <typename Index>
void SparseOutput::append_all(const Kept& batch, SparseCursor<Index>& out) const {
  for (auto at = batch.begin(); at != batch.end();) {
    if (at->second.piece.format == wire::Format::packed) {
      append_range(at++->second, out);
    } else if (grid_.columns == 1) {
      append_piece(at++->second.piece, out);
    } else {
      append_row(at, batch.end(), out);
    }
  }
}

Contribution SparseOutput::read(const wire::Piece& piece) const {
  return *read_segment(kNoRank, segment_of(piece), grid_.layout(piece.chunk));
}

template <typename Index>
void SparseOutput::append_piece(const wire::Piece& piece, SparseCursor<Index>& out) const {
  const Contribution contribution = read(piece);
  const BlockLayout layout = grid_.layout(piece.chunk);
  const std::uint64_t base = piece.chunk * (grid_.chunk_elements / descriptor_.row);
  if (append_indices(contribution.values, layout, descriptor_.row, base, out)) {
    append_values(contribution.values.values, out);
  } else {
    append_thinned(contribution, layout, descriptor_.dtype, descriptor_.row, base, out);
  }
}

// Takes all chunks of one row, and moves `at` past them. Packed values are not copied first.
template <typename Index>
void SparseOutput::append_row(Kept::const_iterator& at, Kept::const_iterator end,
                              SparseCursor<Index>& out) const {
  const std::uint64_t number = at->first / grid_.columns;
  const std::size_t row_bytes = descriptor_.row * grid_.element_size;
  std::vector<Column> columns(grid_.columns);
  for (; at != end && at->first / grid_.columns == number; ++at) {
    const BlockLayout layout = grid_.layout(at->first);
    const std::size_t most = at->second.elements / descriptor_.row;
    Column& column = columns[at->first % grid_.columns];
    column.memory = read(at->second.piece);
    column.indices = std::make_unique_for_overwrite<std::int32_t[]>(most);
    SparseCursor<std::int32_t> local{column.indices.get(), nullptr};
    column.values = column.memory.values.values.data();
    if (!append_indices(column.memory.values, layout, descriptor_.row, 0, local)) {
      column.thinned = Bytes::allocate(most * row_bytes);
      local.values = column.thinned.get();
      column.values = column.thinned.get();
      append_thinned(column.memory, layout, descriptor_.dtype, descriptor_.row, 0, local);
    }
    column.locals = column.indices.get();
    column.end = local.indices;
  }
  const auto append = row_bytes == 4   ? append_columns<4, Index>
                      : row_bytes == 8 ? append_columns<8, Index>
                                       : append_columns<0, Index>;
  append(columns, grid_, descriptor_.row, number, out);
}

template <typename Index>
void SparseOutput::append_range(const Stored& stored, SparseCursor<Index>& out) const {
  const PackedRead packed = read_packed_again(stored.piece, stored.range());
  const std::byte* locals = packed.view.locals.data();
  for (std::size_t chunk = 0; chunk < packed.view.chunks(); ++chunk) {
    const std::size_t count = packed.view.count_in(chunk);
    append_locals(locals, count, (stored.piece.chunk + chunk) * grid_.chunk_elements, out);
    locals += 2 * count;
  }
  append_values(packed.view.values, out);
}

void SparseOutput::write_dense(std::byte* out) const {
  DenseOutput output(descriptor_, grid_, out);
  for (const auto& [chunk, stored] : kept_) output.take(stored.piece, stored.range());
  output.finish();
  list_.scatter(out);
}

}  // namespace sparsewire::proto
