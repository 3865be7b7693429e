// Makes the sinks of a sparse collective.
#include "proto/sparse/outputs.hpp"

#include <algorithm>
#include <new>

namespace sparsewire::proto {

std::vector<PartSink*> Outputs::open(const std::vector<List>& lists) {
  std::vector<PartSink*> sinks;
  for (const List& list : lists) {
    wire::Descriptor descriptor = descriptor_;
    descriptor.count = list.count;
    if (out_ != nullptr) {
      dense_ = std::make_unique<DenseOutput>(descriptor, list.grid, out_);
      sinks.push_back(dense_.get());
    } else {
      sparse_.push_back(
          std::make_unique<SparseOutput>(descriptor, list.grid, empty_list(descriptor, list)));
      SparseOutput& output = *sparse_.back();
      sinks.push_back(lists_.share ? lists_.share(output) : &output);
    }
  }
  return sinks;
}

SparseList Outputs::empty_list(const wire::Descriptor& descriptor, const List& list) const {
  SparseList empty(lists_.is_wide, descriptor.row * element_size(descriptor.dtype),
                   lists_.allocate);
  if (!list.most || !lists_.are_taken) return empty;
  const std::uint64_t room = std::min(*list.most, list.count) / descriptor.row;
  try {
    empty.reserve(room);
  } catch (const std::bad_alloc&) {
    // The results may name far less than the most: room is made when their number is known.
  }
  return empty;
}

void Outputs::finish() {
  if (dense_) dense_->finish();
}

}  // namespace sparsewire::proto
