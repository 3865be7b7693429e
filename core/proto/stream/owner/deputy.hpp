// An owner's deputy on one host: an owner for the host's ranks below it, and one worker to the
// owner above it. Both halves are those that owners and ranks have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/stream/owner/owner.hpp"
#include "proto/stream/worker.hpp"

namespace sparsewire::proto {

class Deputy {
 public:
  struct Outbox {
    std::vector<wire::Message> down;  // for every rank of the host alike
    std::vector<wire::Message> up;    // for the owner
  };

  // The deputy of `owner` for the ranks of one host, in ascending order. `scratch` is the lane's.
  Deputy(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
         const std::vector<Rank>& ranks, std::shared_ptr<Scratch> scratch);

  const std::vector<Rank>& ranks() const { return below_.speakers(); }

  // Frames of the host's ranks, as an owner takes them.
  Status accepts(Rank rank, const wire::FrameHeader& header) const {
    return below_.accepts(rank, header);
  }
  Status on_message(Rank rank, wire::Message message, Outbox& outbox);

  // A result or fail frame of the owner.
  Status on_answer(const wire::Message& message, Outbox& outbox);

  // The next message for the owner; see Worker.
  std::optional<wire::Message> poll() { return above_.poll(owner_); }
  bool has_work() { return above_.has_work(owner_); }

  // See Owner.
  void pause(bool paused, Outbox& outbox);
  bool is_paused() const { return below_.is_paused(); }
  void set_costs(const Costs& costs) { below_.set_costs(costs); }
  std::vector<Rank> missing(std::uint64_t seq) const { return below_.missing(seq); }

 private:
  class Sums;

  Status take(Owner::Outbox made, Outbox& outbox);
  Status begin(const wire::Message& open);
  void cancel(std::uint64_t seq, Outbox& outbox);

  wire::Topology topology_;
  std::uint32_t owner_;
  Owner below_;
  Worker above_;
  std::map<std::uint64_t, Sums*> sums_;  // of operations that are open above
};

}  // namespace sparsewire::proto
