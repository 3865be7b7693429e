// Adds up the ranks' values of one part of a sparse collective: all of them packed, or chunk by
// chunk.
#pragma once

#include <vector>

#include "proto/exchange/part_plan.hpp"
#include "proto/sparse/packed_part.hpp"

namespace sparsewire::proto {

// One rank's values of a part.
struct Held {
  Rank rank;
  std::vector<wire::Piece> pieces;
};

class PartAdder {
 public:
  // The plan must stay. If it has partial sums, all additions of a part but the last make sums of
  // its partial type.
  PartAdder(const PartPlan& plan, const Costs& costs) : plan_(plan), costs_(costs) {}

  // The sum in the given order. `completes`: nothing is missing from it. An error if a piece is not
  // what its format says.
  Result<std::vector<wire::Piece>> add(std::uint64_t part, std::vector<Held> all, bool completes);

 private:
  Result<std::vector<wire::Piece>> add_packed_all(std::uint64_t part, const std::vector<Held>& all,
                                                  bool completes);
  Result<std::vector<wire::Piece>> add_by_chunk(std::uint64_t part, std::vector<Held> all,
                                                bool completes);
  wire::Piece add_chunk(std::uint64_t chunk, const BlockLayout& layout,
                        const std::vector<Contribution>& contributions, bool completes);

  const PartPlan& plan_;
  Costs costs_;
  Scratch scratch_;
};

}  // namespace sparsewire::proto
