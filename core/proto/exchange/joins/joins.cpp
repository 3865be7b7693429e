// Adds up joins and tallies on their way up the tree, and takes the total that comes down.
#include "proto/exchange/joins/joins.hpp"

#include <utility>

namespace sparsewire::proto {
namespace {

wire::Tally tally_of(const wire::Join& join) {
  wire::Tally tally{join.elements, join.elements, join.crowded};
  if (wire::tells_each(join.call)) tally.of_each = {join.elements};
  return tally;
}

void add(wire::Tally& sum, const wire::Tally& tally) {
  sum.elements += tally.elements;
  sum.most = std::max(sum.most, tally.most);
  sum.crowded += tally.crowded;
  sum.of_each.insert(sum.of_each.end(), tally.of_each.begin(), tally.of_each.end());
}

bool is_part_of(const wire::Tally& part, const wire::Tally& whole) {
  return part.elements <= whole.elements && part.most <= whole.most &&
         part.crowded <= whole.crowded;
}

}  // namespace

void Joins::join(const wire::Join& own) {
  heard_.emplace(tree_->rank(), own);
  gather(tree_->rank(), tally_of(own));
}

Status Joins::on_join(Rank from, const wire::Join& join) {
  if (!heard_.emplace(from, join).second) return protocol_error("join: sent twice");
  const Branch* const branch = tree_->branch_of(from);
  if (branch && branch->ranks == 1) gather(from, tally_of(join));
  return {};
}

Status Joins::on_tally(Rank from, const Bytes& payload) {
  const auto join = heard_.find(from);
  if (join == heard_.end()) return protocol_error("tally: its rank has not joined");
  const Branch* const branch = tree_->branch_of(from);
  const Rank ranks = branch ? branch->ranks : tree_->world_size();
  auto tally =
      wire::decode_tally(payload.view(), join->second.call, static_cast<std::size_t>(ranks));
  if (!tally) return tally.error();
  if (!branch) return on_total(*std::move(tally));
  if (tallies_.contains(from)) return protocol_error("tally: that of this branch is known");
  gather(from, *std::move(tally));
  return {};
}

Status Joins::on_total(wire::Tally total) {
  if (!subtotal_ || total_) return protocol_error("tally: that of all ranks is not due");
  if (!is_part_of(*subtotal_, total)) return protocol_error("tally: less than one of its parts");
  total_ = std::move(total);
  return {};
}

void Joins::gather(Rank top, wire::Tally tally) {
  tallies_.emplace(top, std::move(tally));
  if (tallies_.size() != tree_->branches().size() + 1) return;
  subtotal_.emplace();
  for (const auto& [rank, part] : tallies_) add(*subtotal_, part);
  if (!tree_->parent()) total_ = subtotal_;
}

// The report of a rank without branches is its join.
std::optional<wire::Tally> Joins::take_report() {
  const bool reports = tree_->parent() && !tree_->branches().empty();
  if (!reports || !subtotal_ || has_reported_) return {};
  has_reported_ = true;
  return subtotal_;
}

bool Joins::may_have_begun(Rank rank) const {
  return tree_->is_shared() ? subtotal_.has_value() : heard_.contains(rank);
}

std::vector<Rank> Joins::missing() const {
  std::vector<Rank> missing;
  for (const Rank rank : tree_->neighbours()) {
    if (!heard_.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<Rank> Joins::ask_for(Rank asker) {
  const bool were_asked = !askers_.empty();
  askers_.insert(asker);
  return were_asked ? std::vector<Rank>{} : owing();
}

// Neighbours that have joined but owe a tally: so a rank beyond them is late.
std::vector<Rank> Joins::owing() const {
  if (total_) return {};
  if (subtotal_) return {*tree_->parent()};
  std::vector<Rank> owing;
  for (const Branch& branch : tree_->branches()) {
    if (!tallies_.contains(branch.top)) owing.push_back(branch.top);
  }
  return owing;
}

}  // namespace sparsewire::proto
