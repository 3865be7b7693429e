// The ranks to which joins go. Among few ranks each tells all others, which takes one round. Among
// many, joins climb a tree that all ranks share, and their total is passed down the tree.
#pragma once

#include <optional>
#include <vector>

#include "wire/agreement.hpp"

namespace sparsewire::proto {

// From kTreeFrom ranks on there is a tree, in which a rank has at most kBranches branches. With
// four, the way up and down has about as many rounds as a rank sends messages, one after another.
inline constexpr Rank kTreeFrom = 32;
inline constexpr Rank kBranches = 4;
static_assert(kBranches + 1 == wire::kMaxMissing);

// Consecutive ranks below another one: `top` speaks for itself and for the ranks after it.
struct Branch {
  Rank top;
  Rank ranks;
};

// The tree as one rank sees it. Among few ranks each is the root of a tree of its own, in which all
// others are branches of one rank.
class JoinTree {
 public:
  JoinTree(Rank rank, Rank world_size);

  Rank rank() const { return rank_; }
  bool is_shared() const { return world_size_ >= kTreeFrom; }
  std::optional<Rank> parent() const { return parent_; }
  const std::vector<Branch>& branches() const { return branches_; }  // ascending
  Rank world_size() const { return world_size_; }

  // The branch that the rank speaks for, or null.
  const Branch* branch_of(Rank top) const;
  // Parent and branches: the ranks that this rank tells.
  std::vector<Rank> neighbours() const;
  bool is_neighbour(Rank rank) const { return rank == parent_ || branch_of(rank); }

 private:
  Rank rank_;
  Rank world_size_;
  std::optional<Rank> parent_;
  std::vector<Branch> branches_;
};

}  // namespace sparsewire::proto
