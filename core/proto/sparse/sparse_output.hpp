// Receives results of a sparse operation, keeps them as they came, and meanwhile lists those that
// follow each other without a gap. Hands them out as a list, or as a dense array.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "proto/sparse/packed_part.hpp"

namespace sparsewire::proto {

// The place to write ascending indices and their values to. Index is std::int32_t or std::int64_t.
template <typename Index>
struct SparseCursor {
  Index* indices;
  std::byte* values;
};

// A list that grows: ascending indices and a value, or a row, for each. The caller gets it.
class SparseList {
 public:
  using Memory = std::shared_ptr<std::byte[]>;
  using Allocate = std::function<Memory(std::size_t bytes)>;

  // Indices are int64 if they are wide, and int32 otherwise.
  SparseList(bool is_wide, std::size_t row_bytes, Allocate allocate = Bytes::allocate)
      : is_wide_(is_wide), row_bytes_(row_bytes), allocate_(std::move(allocate)) {}

  bool is_wide() const { return is_wide_; }
  std::uint64_t count() const { return count_; }
  const Memory& indices() const { return indices_; }
  const Memory& values() const { return values_; }

  // Bytes of an index, and of its values.

  // How many indices there is room for, including those that are here.
  std::uint64_t room() const { return room_; }
  // Makes room for so many indices. If there is less, all move to other memory.
  void reserve(std::uint64_t room);

  // Calls write(cursor) with a cursor after the last index; `write` moves it on.
  template <typename Write>
  void append(Write&& write) {
    is_wide_ ? append_as<std::int64_t>(write) : append_as<std::int32_t>(write);
  }

  // Copies every row to its place in a dense array.
  void scatter(std::byte* out) const;

 private:
  std::size_t index_bytes() const { return is_wide_ ? 8 : 4; }

  template <typename Index, typename Write>
  void append_as(Write& write) {
    Index* const indices = reinterpret_cast<Index*>(indices_.get());
    SparseCursor<Index> out{indices + count_, values_.get() + count_ * row_bytes_};
    write(out);
    count_ = static_cast<std::uint64_t>(out.indices - indices);
  }

  template <typename Index>
  void scatter_as(std::byte* out) const;

  bool is_wide_;
  std::size_t row_bytes_;
  Allocate allocate_;
  std::uint64_t count_ = 0;
  std::uint64_t room_ = 0;
  Memory indices_;
  Memory values_;
};

class SparseOutput final : public PartSink {
 public:
  // A segment of one chunk, or packed coordinates of several.
  struct Stored {
    wire::Piece piece;
    std::uint64_t end;
    std::uint64_t elements;  // that it names
    ChunkRange range() const { return {piece.chunk, end}; }
  };
  using Kept = std::map<std::uint64_t, Stored>;

  // Results are listed while they come, as far as `list` has room.
  SparseOutput(const wire::Descriptor& descriptor, const ChunkGrid& grid, SparseList list)
      : descriptor_(descriptor), grid_(grid), list_(std::move(list)) {}

  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t chunk, const Segment& segment) override;
  Status write_packed(const wire::Piece& piece, const ChunkRange& range) override;
  void pass(const ChunkRange& range) override;

  // The steps of pass(), for a SharedOutput: list() may run beside any other call, the others one
  // at a time. note() notes that chunks are complete. claim() takes out the results that can be
  // listed next; none if there are none, or if a batch is not settled. list() lists them; settle()
  // notes that.
  void note(const ChunkRange& range);
  std::optional<Kept> claim();
  void list(const Kept& batch);
  void settle() { is_listing_ = false; }

  // The following calls are for the time after the end of the operation.

  // Indices that the results name, or a few more, and the bytes of a list of them.
  std::uint64_t named() const { return list_.count() + elements_kept_ / descriptor_.row; }

  // Writes every element of the vector.
  void write_dense(std::byte* out) const;

  // All results as a list, which shares its memory with that of a later call. If a segment names
  // whole blocks, only non-zero elements count.
  SparseList take();

 private:
  void keep(Stored stored);
  // Takes out the kept results of the chunks before `end`.
  Kept extract_until(Kept::iterator end);
  template <typename Index>
  void append_all(const Kept& batch, SparseCursor<Index>& out) const;
  Contribution read(const wire::Piece& piece) const;
  template <typename Index>
  void append_piece(const wire::Piece& piece, SparseCursor<Index>& out) const;
  template <typename Index>
  void append_row(Kept::const_iterator& at, Kept::const_iterator end,
                  SparseCursor<Index>& out) const;
  template <typename Index>
  void append_range(const Stored& stored, SparseCursor<Index>& out) const;

  wire::Descriptor descriptor_;
  ChunkGrid grid_;
  SparseList list_;
  Kept kept_;
  std::uint64_t elements_kept_ = 0;
  bool is_listing_ = false;                        // a batch was taken out, and is not settled
  std::uint64_t listed_ = 0;                       // chunks whose results were taken out
  std::map<std::uint64_t, std::uint64_t> passed_;  // complete ranges after them, by first chunk
};

}  // namespace sparsewire::proto
