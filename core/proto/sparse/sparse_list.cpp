// Moves the list where it outgrows its memory, and scatters it.
#include "proto/sparse/sparse_list.hpp"

#include <cstring>

namespace sparsewire::proto {

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

void SparseList::scatter(std::byte* target) const {
  is_wide_ ? scatter_as<std::int64_t>(target) : scatter_as<std::int32_t>(target);
}

template <typename Index>
void SparseList::scatter_as(std::byte* target) const {
  const auto* const indices = reinterpret_cast<const Index*>(indices_.get());
  for (std::uint64_t i = 0; i < count_; ++i) {
    std::memcpy(target + static_cast<std::uint64_t>(indices[i]) * row_bytes_,
                values_.get() + i * row_bytes_, row_bytes_);
  }
}

}  // namespace sparsewire::proto
