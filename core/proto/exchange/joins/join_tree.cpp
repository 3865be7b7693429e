// Cuts the ranks below each rank of the tree into branches that are as even as can be.
#include "proto/exchange/joins/join_tree.hpp"

#include <algorithm>

namespace sparsewire::proto {
namespace {

std::vector<Branch> branches_from(Rank first, Rank ranks, Rank most) {
  const Rank count = std::min(most, ranks);
  std::vector<Branch> branches;
  for (Rank i = 0; i < count; ++i) {
    const Rank begin = ranks * i / count;
    branches.push_back({first + begin, ranks * (i + 1) / count - begin});
  }
  return branches;
}

}  // namespace

JoinTree::JoinTree(Rank rank, Rank world_size) : rank_(rank), world_size_(world_size) {
  if (!is_shared()) {
    branches_ = branches_from(0, world_size, world_size);
    branches_.erase(branches_.begin() + rank);
    return;
  }
  branches_ = branches_from(1, world_size - 1, kBranches);
  for (Rank top = 0; top != rank;) {
    const Branch branch = *std::ranges::find_if(
        branches_, [rank](const Branch& branch) { return rank < branch.top + branch.ranks; });
    parent_ = top;
    top = branch.top;
    branches_ = branches_from(top + 1, branch.ranks - 1, kBranches);
  }
}

const Branch* JoinTree::branch_of(Rank top) const {
  const auto at = std::ranges::lower_bound(branches_, top, {}, &Branch::top);
  return at != branches_.end() && at->top == top ? &*at : nullptr;
}

std::vector<Rank> JoinTree::neighbours() const {
  std::vector<Rank> ranks;
  if (parent_) ranks.push_back(*parent_);
  for (const Branch& branch : branches_) ranks.push_back(branch.top);
  return ranks;
}

}  // namespace sparsewire::proto
