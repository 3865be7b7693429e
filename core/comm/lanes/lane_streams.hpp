// The stream's halves of one lane: the worker, the owner if owners are colocated, and the deputies
// if this rank speaks for its host; and the ways of messages between them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/index_set.hpp"
#include "comm/lanes/group_channels.hpp"
#include "comm/operations/operation.hpp"
#include "comm/slots/lane_place.hpp"
#include "proto/stream/owner/deputy.hpp"
#include "proto/stream/owner/owner.hpp"
#include "proto/stream/worker.hpp"

namespace sparsewire::comm {

class LaneStreams {
 public:
  // Called when this rank has all results of an operation.
  using OnEnd = std::function<void(std::uint64_t seq)>;

  LaneStreams(const LanePlace& place, GroupChannels& peers, LaneListener& listener, OnEnd on_end);

  // False if the lane has no part in the operation.
  bool submit(Operation& operation);
  // Has the owners check that all ranks have issued it, and nothing else.
  bool submit_gate(const Operation& operation);
  // Gives up an operation, and tells all owners.
  void cancel(std::uint64_t seq);
  // Lets go of an operation's memory.
  void drop(std::uint64_t seq) { worker_.drop(seq); }
  // Lets go of what owners hold, for ever.
  void break_off() noexcept;
  void set_costs(const proto::Costs& costs);

  // Frames from the owner or the rank at the other end of a channel.
  Status accepts(std::uint32_t from, const wire::FrameHeader& header) const;
  std::byte* place(std::uint32_t from, const wire::FrameHeader& header) const;
  Status on_message(std::uint32_t from, wire::Message message);

  // Sends at most one message to every owner in turn; false if there was none.
  bool produce();
  // Whether it can get on before the next frame comes.
  bool can_produce();
  // Keeps owners from making results while some rank is behind with reading them.
  void pace();
  // Whether pace() would let some owner go on.
  bool can_resume() const;
  // Whether some owner or deputy here waits for that.
  bool is_paused() const;

  // The ranks that an operation waits for, and the owners that have not answered for it.
  std::vector<Rank> missing(std::uint64_t seq) const;
  // The speakers of other hosts that an operation waits for here. Only these hosts can tell which
  // of their ranks are late.
  std::vector<Rank> late_hosts(std::uint64_t seq) const;
  std::vector<std::uint32_t> waiting_for(std::uint64_t seq) const {
    return worker_.waiting_for(seq);
  }
  // All that an operation waits for here or elsewhere, ranks and owners alike.
  std::vector<std::uint32_t> awaited(std::uint64_t seq) const;
  std::uint64_t chunks_empty() const { return worker_.chunks_empty(); }

 private:
  void make_deputies();
  std::vector<std::uint32_t> owners_to_cancel_at(std::uint64_t seq) const;
  proto::Deputy* deputy(std::uint32_t owner) const;
  proto::Deputy* deputy_for(Rank rank, std::uint32_t owner) const;
  bool is_taker(std::uint32_t from, std::uint32_t owner) const;

  Status on_owner_message(Rank rank, wire::Message message);
  Status on_speaker_message(Rank rank, wire::Message message);
  Status on_answer(std::uint32_t from, const wire::Message& message);
  Status on_deputy_answer(std::uint32_t owner, const wire::Message& message);
  Status on_worker_message(std::uint32_t owner, const wire::Message& message);

  bool produce_own();
  bool produce_for_host();
  void note_deputy(std::uint32_t owner);
  void pause_deputies();
  void resume_deputies();
  void pause_deputy(std::uint32_t owner, bool pauses);
  void send_to_taker(std::uint32_t owner, wire::Message message);
  Status send_up(std::uint32_t owner, wire::Message message);
  Status pass_on(std::uint32_t owner, proto::Deputy::Outbox outbox);
  Status broadcast(proto::Owner::Outbox outbox);
  void send_to_others(const std::vector<Rank>& ranks, const wire::Message& message);
  void break_on(const Status& error);

  const LanePlace& place_;
  GroupChannels& peers_;
  LaneListener& listener_;
  OnEnd on_end_;
  proto::Costs costs_;
  proto::Worker worker_;
  std::shared_ptr<proto::Scratch> scratch_ = std::make_shared<proto::Scratch>();
  std::unique_ptr<proto::Owner> owner_;  // null if the owners are dedicated
  // By owner; null if this rank does not speak for its host.
  std::vector<std::unique_ptr<proto::Deputy>> deputies_;
  IndexSet deputies_due_;     // by owner: those that may have something to send
  IndexSet deputies_paused_;  // by themselves, or with the owner
  bool is_pausing_ = false;   // because some member of the group is behind
};

}  // namespace sparsewire::comm
