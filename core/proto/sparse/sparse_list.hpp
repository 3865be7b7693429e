// A list that grows: ascending indices and a value, or a row, for each. It is what the caller gets.
#pragma once

#include <functional>
#include <memory>

#include "base/bytes.hpp"
#include "proto/sparse/chunk_list.hpp"

namespace sparsewire::proto {

class SparseList {
 public:
  using Memory = std::shared_ptr<std::byte[]>;
  using Allocate = std::function<Memory(std::size_t bytes)>;

  // Indices are int64 where they are wide, and int32 otherwise.
  SparseList(bool is_wide, std::size_t row_bytes, Allocate allocate = Bytes::allocate)
      : is_wide_(is_wide), row_bytes_(row_bytes), allocate_(std::move(allocate)) {}

  bool is_wide() const { return is_wide_; }
  std::uint64_t count() const { return count_; }
  const Memory& indices() const { return indices_; }
  const Memory& values() const { return values_; }

  // Bytes that an index takes, and its values.
  std::size_t entry_bytes() const { return index_bytes() + row_bytes_; }

  // How many indices there is room for, those that are here among them.
  std::uint64_t room() const { return room_; }
  // Makes room for so many. Where there is less, all moves to other memory.
  void reserve(std::uint64_t room);

  // Calls write(cursor) with a cursor behind the last index, which it moves on.
  template <typename Write>
  void append(Write&& write) {
    is_wide_ ? append_as<std::int64_t>(write) : append_as<std::int32_t>(write);
  }

  // Copies every row to its place in a dense array.
  void scatter(std::byte* target) const;

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
  void scatter_as(std::byte* target) const;

  bool is_wide_;
  std::size_t row_bytes_;
  Allocate allocate_;
  std::uint64_t count_ = 0;
  std::uint64_t room_ = 0;
  Memory indices_;
  Memory values_;
};

}  // namespace sparsewire::proto
