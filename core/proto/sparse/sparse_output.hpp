// Receives results of a sparse operation and keeps them as they came; of those that leave no gap,
// it makes a list meanwhile. Hands them out as a list, or as a dense array.
#pragma once

#include <map>

#include "proto/sparse/packed_part.hpp"
#include "proto/sparse/row_merger.hpp"
#include "proto/sparse/sparse_list.hpp"

namespace sparsewire::proto {

class SparseOutput final : public PartSink {
 public:
  // Lists are written while results come, as far as `list` has room.
  SparseOutput(const wire::Descriptor& descriptor, const ChunkGrid& grid, SparseList list)
      : descriptor_(descriptor), grid_(grid), list_(std::move(list)) {}

  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t chunk, const Segment& segment) override;
  Status write_packed(const wire::Piece& piece, const ChunkRange& range) override;
  void pass(const ChunkRange& range) override;

  // All that follows only after the end of the operation.

  // Indices that the results name, or a few more, and the bytes of a list of them.
  std::uint64_t named() const { return list_.count() + elements_kept_ / descriptor_.row; }
  std::uint64_t list_bytes() const { return named() * list_.entry_bytes(); }

  // Writes every element of the vector.
  void write_dense(std::byte* target) const;

  // Hands out all as a list, and keeps nothing. Where a segment names whole blocks, only what is
  // not zero counts.
  SparseList take();

 private:
  // A segment of one chunk, or packed coordinates of several.
  struct Stored {
    wire::Piece piece;
    std::uint64_t end;
    std::uint64_t elements;  // that it names
    ChunkRange range() const { return {piece.chunk, end}; }
  };
  using Kept = std::map<std::uint64_t, Stored>;

  void keep(Stored stored);
  // Moves to the list what is kept of the chunks before `end`; false where there is no room.
  bool list_until(std::uint64_t end);
  Contribution read(const wire::Piece& piece) const;
  template <typename Index>
  void write_until(Kept::const_iterator end, SparseCursor<Index>& out) const;
  template <typename Index>
  void write_chunk(const wire::Piece& piece, SparseCursor<Index>& out) const;
  template <typename Index>
  void write_row(Kept::const_iterator& at, SparseCursor<Index>& out) const;
  template <typename Index>
  void write_range(const Stored& stored, SparseCursor<Index>& out) const;

  wire::Descriptor descriptor_;
  ChunkGrid grid_;
  SparseList list_;
  Kept kept_;
  std::uint64_t elements_kept_ = 0;
  std::uint64_t listed_ = 0;                       // chunks whose results are all in the list
  std::map<std::uint64_t, std::uint64_t> passed_;  // ranges behind them, by their first chunk
};

}  // namespace sparsewire::proto
