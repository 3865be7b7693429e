// Hands out what one row of striped chunks names, in the order of the whole vector.
#pragma once

#include "proto/sparse/chunk_list.hpp"
#include "proto/sparse/named.hpp"
#include "proto/sparse/stripes.hpp"

namespace sparsewire::proto {

// Index is std::int32_t or std::int64_t.
template <typename Index>
class RowMerger {
 public:
  // One entry per column; `row` is in elements.
  RowMerger(std::vector<Named> columns, const ChunkGrid& grid, std::uint32_t row);

  // Appends all of row number `number`.
  void merge(std::uint64_t number, SparseCursor<Index>& out);

 private:
  template <std::size_t size>
  void merge_sized(std::uint64_t number, SparseCursor<Index>& out);

  // Appends what a column names below the local index `end`; `shift` makes an index of a local
  // one. A `size` of 0 stands for one that is known only at run time.
  template <std::size_t size>
  void append(std::size_t column, std::size_t end, Index shift, SparseCursor<Index>& out);

  std::vector<Named> columns_;
  std::vector<std::size_t> cursors_;
  ChunkGrid grid_;
  Stripes stripes_;
  std::size_t value_bytes_;
  Index width_;  // of a stripe, in indices
};

}  // namespace sparsewire::proto
