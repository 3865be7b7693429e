// What a sparse collective leaves behind: a sparse vector per list of results, or one dense array.
#pragma once

#include <memory>
#include <vector>

#include "proto/sparse/dense_output.hpp"
#include "proto/sparse/sparse_output.hpp"

namespace sparsewire::proto {

class Outputs {
 public:
  // Results go to `target` where it is not null, and are kept otherwise.
  Outputs(const wire::Descriptor& descriptor, std::byte* target)
      : descriptor_(descriptor), target_(target) {}

  struct List {
    std::uint64_t count;  // elements
    ChunkGrid grid;
  };

  // Called once, when it is known how the algorithm cuts its results; one sink for each list.
  std::vector<PartSink*> open(const std::vector<List>& lists);

  // After the end of the operation: makes the dense target whole.
  void finish();

  // Of these there are as many as lists, but none where there is a target.
  const std::vector<std::unique_ptr<SparseOutput>>& sparse() const { return sparse_; }

 private:
  wire::Descriptor descriptor_;
  std::byte* target_;
  std::unique_ptr<DenseOutput> dense_;
  std::vector<std::unique_ptr<SparseOutput>> sparse_;
};

}  // namespace sparsewire::proto
