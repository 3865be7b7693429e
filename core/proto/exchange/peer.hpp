// A rank's half of the exchange protocol: sparse collectives between workers, without owners. Every
// rank joins an operation by telling its neighbours in the tree of joins what it has called; once
// all have joined and agree, the parts go their ways.
#pragma once

#include <optional>

#include "base/transitions.hpp"
#include "proto/exchange/choice.hpp"
#include "proto/exchange/exchange_share.hpp"
#include "proto/exchange/joins/joins.hpp"
#include "proto/sparse/outputs.hpp"

namespace sparsewire::proto {

// The states of one operation at a peer.
enum class PeerState : std::uint8_t {
  heard,       // others have joined it or refused it; it is not issued here yet
  joining,     // issued here; how it runs depends on ranks that have not joined yet
  streaming,   // issued here to run as a stream from the start: nobody may join it
  exchanging,  // its parts are on their way
  failed,      // remembered until it is dropped
};

// An operation that ends, or that is to run as a stream, is forgotten.
enum class PeerStep : std::uint8_t { submit, issue_stream, exchange, fail };

inline constexpr Transition<PeerState, PeerStep> kPeerTransitions[] = {
    {PeerState::heard, PeerStep::submit, PeerState::joining},
    {PeerState::heard, PeerStep::issue_stream, PeerState::streaming},
    {PeerState::heard, PeerStep::fail, PeerState::failed},
    {PeerState::joining, PeerStep::exchange, PeerState::exchanging},
    {PeerState::joining, PeerStep::fail, PeerState::failed},
    {PeerState::streaming, PeerStep::fail, PeerState::failed},
    {PeerState::exchanging, PeerStep::fail, PeerState::failed},
};

struct PeerEvent {
  enum class Kind : std::uint8_t {
    chosen,  // all have joined; if the operation does not stay an exchange, it is dropped here
    ended,   // the operation is done
    failed,  // the operation cannot be done; it may not have been issued here yet
  };
  Kind kind;
  std::uint64_t seq;
  Error error = {};
  Route route = Route::exchange;
  wire::Algorithm algorithm = wire::Algorithm::automatic;  // of `chosen`
  // If other lanes carry parts, too: the order for them.
  std::shared_ptr<const ExchangeOrder> order = {};
};

class Peer {
 public:
  struct Effects {
    Outgoings messages;
    std::vector<PeerEvent> events;
  };

  // Runs on the first of `lanes` lanes.
  Peer(Rank rank, Rank world_size, const Hosts& hosts = Hosts{}, std::uint32_t lanes = 1)
      : rank_(rank),
        tree_(std::make_shared<const JoinTree>(rank, world_size)),
        hosts_(hosts),
        share_{0, lanes} {}

  // Issues a collective. The tensor and the outputs must stay until it has ended or was dropped.
  // Sequence numbers rise.
  void submit(std::uint64_t seq, const wire::Call& call, const SparseTensor& tensor,
              Outputs& outputs, Effects& effects);

  // Tells that the call was issued here as one that all ranks must issue as a stream.
  void issue_stream(std::uint64_t seq, const wire::Call& call, Effects& effects);

  // Tells all ranks that this one cannot take part in the operation, which was just issued.
  void refuse(std::uint64_t seq, const Error& error, Effects& effects);

  // Takes a join, tally, missing, part or refuse frame. An error means that the rank broke the
  // protocol.
  Status on_message(Rank from, const wire::Message& message, Effects& effects);

  // Gets on with the parts of the oldest operation that can go on. False if there is nothing to do.
  Result<bool> poll(Effects& effects);
  bool has_work() const { return has_work_; }

  // Forgets an operation, whatever its state.
  void drop(std::uint64_t seq);

  // None if the operation is not known or is forgotten.
  std::optional<PeerState> state(std::uint64_t seq) const;

  // The ranks that an operation waits for, as far as this rank can tell. While ranks join, these
  // are neighbours in the tree of joins, or ranks that a neighbour has named when asked.
  std::vector<Rank> missing(std::uint64_t seq) const;
  // Asks neighbours which ranks have not joined an operation, if this rank cannot tell. False if
  // the operation is not known here, or is not joining.
  bool ask(std::uint64_t seq, Effects& effects);

  void set_link(const LinkFigures& link) { link_ = link; }

 private:
  struct Operation {
    explicit Operation(std::shared_ptr<const JoinTree> tree) : joins(std::move(tree)) {}

    PeerState state = PeerState::heard;
    wire::Call call;          // once it is issued here
    Joins joins;              // including this rank's, unless it runs as a stream
    std::vector<Rank> named;  // as not having joined, in answer to this rank's question
    SparseTensor tensor;
    Outputs* outputs = nullptr;
    ExchangeShare parts;

    void move(PeerStep step) { state = next_state(kPeerTransitions, state, step); }
  };

  Operation& issue(std::uint64_t seq);
  Operation* find_or_create(std::uint64_t seq);
  Status on_late(Rank from, const wire::Message& message, Effects& effects);
  Status on_join(Rank from, Operation& operation, const wire::Message& message, Effects& effects);
  Status on_tally(Rank from, Operation& operation, const wire::Message& message, Effects& effects);
  Status on_missing(Rank from, Operation& operation, const wire::Message& message,
                    Effects& effects);
  void inquire(std::uint64_t seq, Operation& operation, Rank asker, Effects& effects);
  void answer(std::uint64_t seq, Operation& operation, Rank asker, const std::vector<Rank>& missing,
              Effects& effects);
  Status on_refuse(Rank from, Operation& operation, const wire::Message& message, Effects& effects);
  Status on_part(Rank from, Operation& operation, const wire::Message& message, Effects& effects);
  void check_agreement(std::uint64_t seq, Operation& operation, Effects& effects);
  bool is_alike(std::uint64_t seq, Operation& operation, Effects& effects);
  void advance(std::uint64_t seq, Operation& operation, Effects& effects);
  void conclude(std::uint64_t seq, Operation& operation, Effects& effects);
  void tell_neighbours(const wire::Message& message, Rank but, Effects& effects) const;
  void fail(std::uint64_t seq, Operation& operation, const Error& error, Effects& effects);
  void note_failure(std::uint64_t seq, const Error& error, Effects& effects);
  void start(std::uint64_t seq, Operation& operation, const Agreement& agreement, Effects& effects);
  std::vector<PartSink*> open_sinks(const PartPlan& plan, const Operation& operation) const;
  // The most elements that a list of results can name, if all ranks have joined.
  std::optional<std::uint64_t> most_of(std::uint64_t list, const Operation& operation) const;

  Rank rank_;
  std::shared_ptr<const JoinTree> tree_;
  Hosts hosts_;
  LaneShare share_;
  LinkFigures link_;
  std::uint64_t issued_ = 0;  // operations below it are issued here
  std::map<std::uint64_t, Operation> operations_;
  std::map<std::uint64_t, Error> failures_;  // the latest, for ranks that join too late
  bool has_work_ = false;
};

}  // namespace sparsewire::proto
