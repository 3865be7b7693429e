// What a sparse collective leaves behind: a sparse vector per list of results, or one dense array.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "proto/sparse/dense_output.hpp"
#include "proto/sparse/sparse_output.hpp"

namespace sparsewire::proto {

// What the caller makes of results where it gives no `out`.
struct Lists {
  bool is_wide = true;                              // indices of lists are int64
  bool are_taken = true;                            // or become one dense array in the end
  SparseList::Allocate allocate = Bytes::allocate;  // memory of lists
  // What several lanes may write to at once in place of an output; none where one lane does.
  std::function<PartSink*(SparseOutput&)> share = {};
};

class Outputs {
 public:
  // Results go to `out` where it is not null, and are kept or listed otherwise.
  Outputs(const wire::Descriptor& descriptor, std::byte* out, Lists lists = {})
      : descriptor_(descriptor), out_(out), lists_(std::move(lists)) {}

  struct List {
    std::uint64_t count;  // elements
    ChunkGrid grid;
    std::optional<std::uint64_t> most = {};  // elements that can be named, where that is known
  };

  // Called once, when it is known how the algorithm cuts its results; one sink for each list.
  std::vector<PartSink*> open(const std::vector<List>& lists);

  // After the end of the operation: makes the dense output whole.
  void finish();

  // Of these there are as many as lists, but none where there is an `out`.
  const std::vector<std::unique_ptr<SparseOutput>>& sparse() const { return sparse_; }

 private:
  SparseList empty_list(const wire::Descriptor& descriptor, const List& list) const;

  wire::Descriptor descriptor_;
  std::byte* out_;
  Lists lists_;
  std::unique_ptr<DenseOutput> dense_;
  std::vector<std::unique_ptr<SparseOutput>> sparse_;
};

}  // namespace sparsewire::proto
