// Finds the ranks that have not joined an operation: their neighbours know, and all other ranks ask
// along the tree.
#include "proto/exchange/peer.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {
namespace {

wire::Message missing_message(const std::vector<Rank>& ranks, std::uint64_t seq) {
  return wire::message_of({.kind = wire::FrameKind::missing, .seq = seq},
                          wire::encode_missing(ranks));
}

}  // namespace

std::vector<Rank> Peer::missing(std::uint64_t seq) const {
  const auto at = operations_.find(seq);
  const bool is_joined = at != operations_.end() && at->second.joins.heard().contains(rank_);
  if (!is_joined) return {};
  const Operation& operation = at->second;
  if (operation.parts.has_begun() && operation.joins.total()) return operation.parts.missing();
  const std::vector<Rank> missing = operation.joins.missing();
  return missing.empty() ? operation.named : missing;
}

bool Peer::ask(std::uint64_t seq, Effects& effects) {
  const auto at = operations_.find(seq);
  const bool is_due = at != operations_.end() && at->second.state == PeerState::joining;
  if (is_due) inquire(seq, at->second, rank_, effects);
  return is_due;
}

// A neighbour of a late rank knows it; all others pass the question on towards that rank.
void Peer::inquire(std::uint64_t seq, Operation& operation, Rank asker, Effects& effects) {
  const std::vector<Rank> missing = operation.joins.missing();
  if (!missing.empty()) return answer(seq, operation, asker, missing, effects);
  for (const Rank rank : operation.joins.ask_for(asker)) {
    effects.messages.push_back({rank, missing_message({}, seq)});
  }
}

Status Peer::on_missing(Rank from, Operation& operation, const wire::Message& message,
                        Effects& effects) {
  const auto ranks = wire::decode_missing(message.payload.view(), tree_->world_size());
  if (!ranks) return ranks.error();
  if (operation.state != PeerState::joining) return {};
  const std::uint64_t seq = message.header.seq;
  if (ranks->empty()) {
    inquire(seq, operation, from, effects);
    return {};
  }
  for (const Rank asker : operation.joins.take_askers()) {
    answer(seq, operation, asker, *ranks, effects);
  }
  return {};
}

void Peer::answer(std::uint64_t seq, Operation& operation, Rank asker,
                  const std::vector<Rank>& missing, Effects& effects) {
  if (asker == rank_) {
    operation.named = missing;
  } else {
    effects.messages.push_back({asker, missing_message(missing, seq)});
  }
}

}  // namespace sparsewire::proto
