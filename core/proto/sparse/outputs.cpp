// Makes the sinks of a sparse collective.
#include "proto/sparse/outputs.hpp"

namespace sparsewire::proto {

std::vector<PartSink*> Outputs::open(const std::vector<List>& lists) {
  std::vector<PartSink*> sinks;
  for (const List& list : lists) {
    wire::Descriptor descriptor = descriptor_;
    descriptor.count = list.count;
    if (target_ != nullptr) {
      dense_ = std::make_unique<DenseOutput>(descriptor, list.grid, target_);
      sinks.push_back(dense_.get());
    } else {
      sparse_.push_back(std::make_unique<SparseOutput>(descriptor, list.grid));
      sinks.push_back(sparse_.back().get());
    }
  }
  return sinks;
}

void Outputs::finish() {
  if (dense_) dense_->finish();
}

}  // namespace sparsewire::proto
