// Who has joined one operation, as one rank hears of it from its neighbours in the tree of joins,
// and what all ranks bring to it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "proto/exchange/joins/join_tree.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

class Joins {
 public:
  explicit Joins(std::shared_ptr<const JoinTree> tree) : tree_(std::move(tree)) {}

  // This rank joins.
  void join(const wire::Join& own);
  // A neighbour joins, or tells what a branch or, if it is the parent, all ranks bring. An error
  // means that it broke the protocol.
  Status on_join(Rank from, const wire::Join& join);
  Status on_tally(Rank from, const Bytes& payload);

  // Of neighbours, and this rank's own.
  const std::map<Rank, wire::Join>& heard() const { return heard_; }

  // What the parent waits for; given once, when this rank and all below it have joined.
  std::optional<wire::Tally> take_report();
  // What all ranks bring; none before this rank knows that all have joined.
  const std::optional<wire::Tally>& total() const { return total_; }
  // Whether the rank may know that this one has joined, and have begun.
  bool may_have_begun(Rank rank) const;
  // Neighbours that have not joined.
  std::vector<Rank> missing() const;

  // Of a rank that wants to know who has not joined, where all neighbours have: those to ask for
  // it, unless they were asked before.
  std::vector<Rank> ask_for(Rank asker);
  // All who wait for the answer.
  std::set<Rank> take_askers() { return std::exchange(askers_, {}); }

 private:
  Status on_total(wire::Tally total);
  void gather(Rank top, wire::Tally tally);
  std::vector<Rank> owing() const;

  std::shared_ptr<const JoinTree> tree_;
  std::map<Rank, wire::Join> heard_;
  std::map<Rank, wire::Tally> tallies_;  // of whole branches, and of this rank
  std::optional<wire::Tally> subtotal_;  // of this rank and all below it, once all have joined
  bool has_reported_ = false;
  std::optional<wire::Tally> total_;
  std::set<Rank> askers_;
};

}  // namespace sparsewire::proto
