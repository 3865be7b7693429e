// How operations fail at an owner: ranks disagree, or one refuses or cancels. A failed operation is
// remembered until the ranks that know of it have cancelled it.
#include <algorithm>
#include <utility>

#include "proto/stream/owner/owner.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

// Counts the operation as one that the rank has given up and others have not.
void Owner::settle(Speaker speaker, Operation& operation) {
  if (operation.has(speaker, unsettled)) return;
  operation.marks[speaker] |= unsettled;
  ++accounts_[speaker].unsettled;
}

void Owner::on_cancel(Speaker speaker, std::uint64_t seq) {
  Operation& operation = find_or_create(seq);
  settle(speaker, operation);
  // The rank's window does not count the operation any more. Older ones may still wait to be
  // opened.
  if (operation.has(speaker, opened)) accounts_[speaker].in_flight -= kOpenCost;
  operation.marks[speaker] &= static_cast<std::uint8_t>(~opened);
  operation.marks[speaker] |= cancelled;
  give_up(operation);
  forget_if_settled(seq);
}

// If not all ranks cancel, ranks that have not opened the operation by then may open it anew, and
// cancel it, too. Other ranks never open it again, so nothing comes of that.
void Owner::forget_if_settled(std::uint64_t seq) {
  const Operation& operation = operations_.at(seq);
  if (all_cancel_ ? operation.all_have(cancelled) : !operation.any_has(opened)) close(seq);
}

void Owner::on_refuse(Speaker speaker, std::uint64_t seq, const Error& error, Outbox& outbox) {
  Operation& operation = find_or_create(seq);
  settle(speaker, operation);
  if (!operation.has_failed()) fail(seq, operation, error, outbox);
  forget_if_settled(seq);
}

void Owner::fail(std::uint64_t seq, Operation& operation, const Error& error, Outbox& outbox) {
  outbox.push_back(wire::fault_message(wire::FrameKind::fail, error, seq));
  outbox.back().header.owner = static_cast<std::uint16_t>(owner_);
  give_up(operation);
}

void Owner::give_up(Operation& operation) {
  if (!operation.has_failed()) operation.move(OwnerStep::fail);
  release(operation);
}

void Owner::disagree(std::uint64_t seq, Operation& operation, Speaker speaker,
                     const wire::Descriptor& descriptor, Outbox& outbox) {
  const Speaker other = operation.first_with(opened);
  const auto says = [&](Speaker who) {
    return "rank " + std::to_string(speakers_[who]) + " called " +
           wire::describe(who == speaker ? descriptor : operation.descriptor);
  };
  const auto [a, b] = std::minmax(speaker, other);
  fail(seq, operation,
       {ErrorCode::mismatch, speakers_[b], "ranks disagree: " + says(a) + ", " + says(b)}, outbox);
}

}  // namespace sparsewire::proto
