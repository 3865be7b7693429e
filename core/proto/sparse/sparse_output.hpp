// Receives results and keeps them as they came until the operation has ended; then hands them out
// as a sparse vector or as a dense array.
#pragma once

#include <map>

#include "proto/sparse/packed_part.hpp"
#include "proto/sparse/row_merger.hpp"

namespace sparsewire::proto {

class SparseOutput final : public PartSink {
 public:
  SparseOutput(const wire::Descriptor& descriptor, const ChunkGrid& grid)
      : descriptor_(descriptor), grid_(grid) {}

  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t chunk, const Segment& segment) override;
  Status write_packed(const wire::Piece& piece, const ChunkRange& range) override;

  // All that follows only after the end of the operation.

  // Indices that the results name, or a few more: a bound for write_sparse().
  std::uint64_t named() const { return elements_ / descriptor_.row; }

  // Writes ascending indices and their values, a row each; returns how many. Where a segment names
  // whole blocks, only what is not zero counts. Index is std::int32_t, where the vector is no
  // longer than that allows, or std::int64_t.
  template <typename Index>
  std::uint64_t write_sparse(Index* indices, std::byte* values) const;

  // Writes every element of the vector.
  void write_dense(std::byte* target) const;

 private:
  // A segment of one chunk, or packed coordinates of several.
  struct Stored {
    wire::Piece piece;
    std::uint64_t end;
    ChunkRange range() const { return {piece.chunk, end}; }
  };
  using At = std::map<std::uint64_t, Stored>::const_iterator;

  Contribution read(const wire::Piece& piece) const;
  template <typename Index>
  void write_chunk(const wire::Piece& piece, SparseCursor<Index>& out) const;
  template <typename Index>
  void write_row(At& at, SparseCursor<Index>& out) const;
  template <typename Index>
  void write_range(const Stored& stored, SparseCursor<Index>& out) const;

  wire::Descriptor descriptor_;
  ChunkGrid grid_;
  std::map<std::uint64_t, Stored> stored_;
  std::uint64_t elements_ = 0;
};

}  // namespace sparsewire::proto
