// A set of small numbers, such as the peers for which there is something to do. A walk goes in
// ascending order, and costs a step for each member, and one for every 64 numbers that might be
// members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bitmap.hpp"

namespace sparsewire {

class IndexSet {
 public:
  // For numbers below `size`.
  explicit IndexSet(std::size_t size = 0) : size_(size), words_(bitmap_words(size)) {}

  bool empty() const { return count_ == 0; }
  bool contains(std::size_t index) const { return test_bit(words_.data(), index); }

  void insert(std::size_t index) { set(index, true); }
  void erase(std::size_t index) { set(index, false); }

  // The first member from `from` on, or `size` if there is none.
  std::size_t next(std::size_t from = 0) const {
    return empty() ? size_ : find_bit(words_.data(), from, size_, true);
  }

  // Calls visit(index) for every member, those from `first` on first. `visit` may insert and erase.
  template <typename Visit>
  void for_each_from(std::size_t first, Visit&& visit) const {
    for (std::size_t at = next(first); at < size_; at = next(at + 1)) visit(at);
    for (std::size_t at = next(); at < first; at = next(at + 1)) visit(at);
  }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for_each_from(0, visit);
  }

 private:
  void set(std::size_t index, bool is_member) {
    if (contains(index) == is_member) return;
    words_[index / kBitmapWordBits] ^= std::uint64_t{1} << (index % kBitmapWordBits);
    is_member ? ++count_ : --count_;
  }

  std::size_t size_;
  std::vector<std::uint64_t> words_;
  std::size_t count_ = 0;
};

}  // namespace sparsewire
