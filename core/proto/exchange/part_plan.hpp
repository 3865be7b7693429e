// The parts of a sparse collective: stretches of the index range that run through a schedule each,
// one after another, so that sending, adding and receiving overlap.
#pragma once

#include "proto/exchange/schedule.hpp"
#include "proto/stream/plan.hpp"

namespace sparsewire::proto {

class PartPlan {
 public:
  // The algorithm is one of those that run by schedules. `most_elements` is the most elements that
  // one rank names.
  PartPlan(const wire::Call& call, wire::Algorithm algorithm, Rank rank, Rank world_size,
           std::uint64_t seq, std::uint64_t most_elements, const Hosts& hosts = Hosts{});

  // Results come in lists: one per rank in an all_gather, one otherwise.
  std::uint64_t lists() const;
  // The chunks of one list, which in a reduce_scatter is one rank's slice of the vector.
  ChunkGrid grid(std::uint64_t list) const;

  std::uint64_t parts() const { return lists_ * parts_per_list_; }
  std::uint64_t list_of(std::uint64_t part) const { return part / parts_per_list_; }
  // The chunks of the part's list, with elements as they are before or after the last addition; and
  // the range of these chunks that is the part.
  ChunkGrid grid_of(std::uint64_t part, bool is_complete) const;
  ChunkRange range_of(std::uint64_t part) const;

  // Which of `lanes` lanes carries the part. The cut does not depend on the lanes. Few elements
  // take the first lane alone.
  std::uint32_t lane_of(std::uint64_t part, std::uint32_t lanes) const;
  bool is_shared_by(std::uint32_t lanes) const;

  Schedule schedule(std::uint64_t part) const;
  // Whether this rank brings values of its own, and whether it gets the result.
  bool contributes(std::uint64_t part) const;
  bool receives(std::uint64_t part) const;

  // The list that this rank gets, if it gets one of several.
  std::uint64_t own_list() const { return lists_ == 1 ? 0 : static_cast<std::uint64_t>(rank_); }

  // The range of the whole vector, in elements, that a list covers.
  std::uint64_t begin(std::uint64_t list) const;
  std::uint64_t end(std::uint64_t list) const;

  // Whether sums are passed on before they are complete, and their type. Half types then travel in
  // their accumulator's type, to be rounded only once.
  bool has_partial_sums() const { return has_partial_sums_; }
  DType partial_dtype() const;

  const wire::Call& call() const { return call_; }
  Rank rank() const { return rank_; }
  Rank world_size() const { return world_size_; }
  std::uint64_t seq() const { return seq_; }

 private:
  Rank keeper(std::uint64_t part) const;
  bool adds_up_by_hosts() const;

  wire::Call call_;
  wire::Algorithm algorithm_;
  Rank rank_;
  Rank world_size_;
  std::uint64_t seq_;
  std::uint64_t most_elements_;
  Hosts hosts_;
  std::uint64_t lists_;
  std::uint64_t chunks_per_part_ = 1;
  std::uint64_t parts_per_list_ = 1;
  bool has_partial_sums_;
};

}  // namespace sparsewire::proto
