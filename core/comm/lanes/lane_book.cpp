// Keeps operations by number. The departure of a rank ends later operations.
#include "comm/lanes/lane_book.hpp"

#include <algorithm>

namespace sparsewire::comm {

void LaneBook::add(std::shared_ptr<Operation> operation) {
  note_deadline(operation->arguments().deadline);
  const std::uint64_t seq = operation->seq();
  operations_.emplace(seq, std::move(operation));
}

Status LaneBook::abandoned() const {
  if (operations_.empty()) return {};
  const std::uint64_t newest = operations_.rbegin()->first;
  for (const auto& [rank, issued] : departed_) {
    if (newest < issued) continue;
    return Error{ErrorCode::peer_lost, rank,
                 "rank " + std::to_string(rank) + " closed its communicator while others went on"};
  }
  return {};
}

}  // namespace sparsewire::comm
