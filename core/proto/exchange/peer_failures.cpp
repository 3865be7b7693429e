// How operations fail at a peer: ranks refuse them, and late ranks hear of it.
#include "proto/exchange/peer.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {
namespace {

// How many failures are remembered: more than operations that are ever on their way at once.
constexpr std::size_t kFailuresKept = 1024;

wire::Message refuse_message(const Error& error, std::uint64_t seq) {
  return wire::fault_message(wire::FrameKind::refuse, error, seq);
}

}  // namespace

void Peer::refuse(std::uint64_t seq, const Error& error, Effects& effects) {
  issued_ = seq + 1;
  operations_.erase(seq);
  tell_neighbours(refuse_message(error, seq), kNoRank, effects);
  note_failure(seq, error, effects);
}

// Late frames belong to an operation that has failed here, or in which this lane has no part. A
// rank that joins it may hear of that from no other rank, and must not wait for ever. If a rank
// refuses it, other lanes may be at work on it.
Status Peer::on_late(Rank from, const wire::Message& message, Effects& effects) {
  const std::uint64_t seq = message.header.seq;
  const auto known = failures_.find(seq);
  if (message.header.kind == wire::FrameKind::refuse && known == failures_.end()) {
    return wire::take_fault(message, [&](const Error& error) {
      if (tree_->is_shared()) tell_neighbours(refuse_message(error, seq), from, effects);
      note_failure(seq, error, effects);
    });
  }
  if (message.header.kind != wire::FrameKind::join) return {};
  const Error error =
      known != failures_.end()
          ? known->second
          : Error{ErrorCode::mismatch, rank_,
                  "ranks disagree: rank " + std::to_string(rank_) + " called another collective"};
  effects.messages.push_back({from, refuse_message(error, seq)});
  return {};
}

// Among few ranks the refusal was sent to all; a tree passes it on.
Status Peer::on_refuse(Rank from, Operation& operation, const wire::Message& message,
                       Effects& effects) {
  const std::uint64_t seq = message.header.seq;
  return wire::take_fault(message, [&](const Error& error) {
    if (tree_->is_shared()) tell_neighbours(refuse_message(error, seq), from, effects);
    fail(seq, operation, error, effects);
  });
}

void Peer::fail(std::uint64_t seq, Operation& operation, const Error& error, Effects& effects) {
  operation.move(PeerStep::fail);
  operation.parts = {};
  note_failure(seq, error, effects);
}

void Peer::note_failure(std::uint64_t seq, const Error& error, Effects& effects) {
  failures_.emplace(seq, error);
  if (failures_.size() > kFailuresKept) failures_.erase(failures_.begin());
  effects.events.push_back({PeerEvent::Kind::failed, seq, error});
}

}  // namespace sparsewire::proto
