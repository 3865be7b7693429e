// The protocols of one lane: hands frames from the channels to the streams and the exchanges, and
// begins and ends the operations of the lane's book.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "comm/lanes/lane_book.hpp"
#include "comm/lanes/lane_slots.hpp"
#include "comm/lanes/lane_streams.hpp"
#include "proto/exchange/exchanges.hpp"
#include "proto/exchange/peer.hpp"

namespace sparsewire::comm {

class LaneProtocol {
 public:
  LaneProtocol(const LanePlace& place, GroupChannels& peers, LaneBook& book,
               LaneListener& listener);

  // Start an operation of the book: as a stream, and, on the lane that has exchanges, as one that
  // all ranks must agree on first, or that this rank refuses.
  void submit(Operation& operation);
  void introduce(Operation& operation);
  // Carries this lane's parts of an operation of the book that another lane's ranks have joined.
  void exchange(std::uint64_t seq, const proto::ExchangeOrder& order);
  // Gives up an operation that has failed.
  void fail(std::uint64_t seq);
  // Give up all operations, for ever: break_off() lets go of what owners and exchanges hold;
  // end_all() ends the operations, once no channel uses their memory any more.
  void break_off() noexcept;
  void end_all() noexcept;
  bool is_broken() const { return std::holds_alternative<Broken>(part_); }
  void set_link(const proto::LinkFigures& link);

  // For calls that concern the stream alone.
  LaneStreams& streams() { return streams_; }
  const LaneStreams& streams() const { return streams_; }

  // Frames from the owner or the rank at the other end of a channel.
  Status accepts(std::uint32_t from, const wire::FrameHeader& header) const;
  Status on_message(std::uint32_t from, wire::Message message);

  // Gets on with exchanges.
  void run_exchanges();
  // Get on with operations by datagrams. The thread watches their sockets from the beginning.
  void watch_slots(ProgressThread& thread);
  void disown();
  void run_slots(Clock::time_point now);
  std::vector<PathSurvey> survey_paths() const;
  Clock::time_point next_due() const;
  // Whether there is something to do before the next frame comes.
  bool has_work(Clock::time_point now);
  // Whether there is nothing to do before a frame or a call comes.
  bool is_idle();

  // The ranks that an operation waits for.
  std::vector<Rank> missing(std::uint64_t seq) const;
  // Asks other ranks which ranks have not joined an operation; false if none has to join any more.
  bool ask(std::uint64_t seq);
  // All peers that an operation waits for, also ranks that others are known through. This rank must
  // be connected with them, to know that they are there.
  std::vector<std::uint32_t> awaited(std::uint64_t seq) const;

 private:
  // The lane's work beside streams. With dedicated owners there is none. With colocated owners,
  // ranks join on the first lane, and all other lanes carry the exchanges that it tells them of.
  // The only change is to Broken, for ever.
  struct Streaming {};
  struct Broken {};
  using Part = std::variant<Streaming, std::unique_ptr<proto::Peer>,
                            std::unique_ptr<proto::Exchanges>, Broken>;

  // Null in other states.
  proto::Peer* peer() const { return in_part<proto::Peer>(); }
  proto::Exchanges* exchanges() const { return in_part<proto::Exchanges>(); }
  template <typename Half>
  Half* in_part() const {
    const auto* const half = std::get_if<std::unique_ptr<Half>>(&part_);
    return half ? half->get() : nullptr;
  }

  void check_path(SlotEnd& end, std::uint32_t owner);
  Status on_peer_message(Rank rank, const wire::Message& message);
  Status on_part(Rank rank, const wire::Message& message);
  void poll_peer();
  void poll_exchanges();
  void refuse(std::uint64_t seq, const Error& bad_input, proto::Peer::Effects& effects);
  void apply(proto::Peer::Effects effects);
  void send(proto::Outgoings messages);
  bool takes(wire::FrameKind kind) const;
  bool has_exchange() const;
  bool can_exchange() const;
  void on_stream_end(std::uint64_t seq);
  void end(std::uint64_t seq);

  const LanePlace& place_;
  GroupChannels& peers_;
  LaneBook& book_;
  LaneListener& listener_;
  LaneStreams streams_;
  std::unique_ptr<LaneSlots> slots_;  // null if nothing goes by datagrams
  Part part_ = Streaming{};
};

}  // namespace sparsewire::comm
