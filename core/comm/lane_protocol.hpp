// The protocols' halves of one lane: hands them what comes on the channels, and the channels what
// they have to say.
#pragma once

#include <memory>
#include <vector>

#include "comm/lane_book.hpp"
#include "proto/exchange/peer.hpp"
#include "proto/stream/deputy.hpp"
#include "proto/stream/owner.hpp"
#include "proto/stream/worker.hpp"

namespace sparsewire::comm {

class LaneProtocol {
 public:
  LaneProtocol(const LanePlace& place, PeerChannels& peers, LaneBook& book, LaneListener& listener);

  // Start an operation of the book: as a stream, and, on the lane that has exchanges, as one that
  // all ranks must agree on first, or that this rank refuses.
  void submit(Operation& operation);
  void introduce(Operation& operation);
  // Gives up an operation that has failed.
  void fail(std::uint64_t seq);
  // Gives up all of them, for ever: lets go of what owners and exchanges hold; then, once no
  // channel lends their memory any more, ends them.
  void break_off() noexcept;
  void end_all() noexcept;
  bool is_broken() const { return is_broken_; }
  void set_link(const proto::LinkFigures& link);

  // Frames from the owner or the rank at the other end of a channel.
  Status accepts(std::uint32_t from, const wire::FrameHeader& header) const;
  std::byte* place(std::uint32_t from, const wire::FrameHeader& header) const;
  Status on_message(std::uint32_t from, wire::Message message);

  // Sends at most one message to every owner in turn; false where there was none.
  bool produce();
  // Whether it would get further without a frame coming first.
  bool can_produce();
  // Gets on with exchanges.
  void run_exchanges();
  // Lets owners make no results while some rank is behind with reading them.
  void pace_owner();
  // Whether any of these has something to do, without a frame coming first.
  bool has_work();

  // The ranks that an operation waits for, and the owners that have not answered for it.
  std::vector<Rank> missing(std::uint64_t seq) const;
  std::vector<std::uint32_t> waiting_for(std::uint64_t seq) const {
    return worker_.waiting_for(seq);
  }
  // All of these, with those whose word this rank passes on: with whom it must be connected, to
  // know that they are there.
  std::vector<std::uint32_t> awaited(std::uint64_t seq) const;

 private:
  proto::Deputy* deputy_for(Rank rank, std::uint32_t owner) const;
  Status on_owner_message(Rank rank, wire::Message message);
  bool is_taker(std::uint32_t from, std::uint32_t owner) const;
  Status on_speaker_message(Rank rank, wire::Message message);
  Status on_answer(std::uint32_t from, const wire::Message& message);
  Status on_deputy_answer(std::uint32_t owner, const wire::Message& message);
  Status on_worker_message(std::uint32_t owner, const wire::Message& message);
  Status on_peer_message(Rank rank, const wire::Message& message);
  Status broadcast(proto::Owner::Outbox outbox);
  Status pass_on(std::uint32_t owner, proto::Deputy::Outbox outbox);
  Status send_up(std::uint32_t owner, wire::Message message);
  void send_to_others(const std::vector<Rank>& ranks, const wire::Message& message);
  void send_to_taker(std::uint32_t owner, wire::Message message);
  bool produce_for_host(std::uint32_t owner);
  void refuse(std::uint64_t seq, const Error& bad_input, proto::Peer::Effects& effects);
  void apply(proto::Peer::Effects effects);
  bool can_exchange() const;
  void end(std::uint64_t seq);

  const LanePlace& place_;
  PeerChannels& peers_;
  LaneBook& book_;
  LaneListener& listener_;
  proto::Worker worker_;
  std::unique_ptr<proto::Owner> owner_;  // null where the owners are dedicated
  // By owner; null where this rank is not the one that speaks for its host.
  std::vector<std::unique_ptr<proto::Deputy>> deputies_;
  std::unique_ptr<proto::Peer> peer_;  // null there, too, and in all lanes but the first
  proto::Costs costs_;
  bool is_broken_ = false;
};

}  // namespace sparsewire::comm
