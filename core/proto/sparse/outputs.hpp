// The results of a sparse collective: a sparse vector per list of results, or one dense array.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "proto/sparse/dense_output.hpp"
#include "proto/sparse/sparse_output.hpp"

namespace sparsewire::proto {

// The form of results if the caller gives no `out`.
struct Lists {
  bool is_wide = true;                              // indices of lists are int64
  bool are_taken = true;                            // else they end as one dense array
  SparseList::Allocate allocate = Bytes::allocate;  // memory of lists
  // Makes a sink, in place of an output, that several lanes may write to at once; none for one
  // lane.
  std::function<PartSink*(SparseOutput&)> share = {};
};

class Outputs {
 public:
  // Results go to `out` if it is not null; otherwise they are kept or listed.
  Outputs(const wire::Descriptor& descriptor, std::byte* out, Lists lists = {})
      : descriptor_(descriptor), out_(out), lists_(std::move(lists)) {}

  struct List {
    std::uint64_t count;  // elements
    ChunkGrid grid;
    std::optional<std::uint64_t> most = {};  // elements that can be named, if that is known
  };

  // Called once, when it is known how the algorithm cuts its results; returns one sink for each
  // list.
  std::vector<PartSink*> open(const std::vector<List>& lists);

  // After the end of the operation: makes the dense output whole.
  void finish();

  // One for each list; empty if there is an `out`.
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
