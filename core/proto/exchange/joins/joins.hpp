// The joins of one operation that one rank hears of from its neighbours in the tree of joins, and
// the tally of all ranks.
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
  // A neighbour joins, or sends the tally of its branch or, if it is the parent, of all ranks. An
  // error means that it broke the protocol.
  Status on_join(Rank from, const wire::Join& join);
  Status on_tally(Rank from, const Bytes& payload);

  // The joins of neighbours, and this rank's own.
  const std::map<Rank, wire::Join>& heard() const { return heard_; }

  // The tally that the parent waits for; given once, when this rank and all below it have joined.
  std::optional<wire::Tally> take_report();
  // The tally of all ranks; none before this rank knows that all have joined.
  const std::optional<wire::Tally>& total() const { return total_; }
  // Whether `rank` may have begun, as far as this rank can tell.
  bool may_have_begun(Rank rank) const;
  // Neighbours that have not joined.
  std::vector<Rank> missing() const;

  // Takes the question of a rank, which ranks have not joined, if all neighbours have. Returns the
  // neighbours to ask, unless they were asked before.
  std::vector<Rank> ask_for(Rank asker);
  // All ranks that wait for the answer.
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
