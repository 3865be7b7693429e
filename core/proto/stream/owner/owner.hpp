// The owner's half of the stream protocol: gathers the segments of its speakers (all ranks, or a
// rank of each host), knows by their look-ahead when a chunk is complete, and adds it up. By its
// role, a sum becomes a result for every speaker, or a segment for the owner above.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/transitions.hpp"
#include "proto/stream/owner/reduce.hpp"
#include "proto/stream/plan.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

// Operations that one rank may have cancelled or refused while others have not caught up. Each is
// an operation that failed, and that no rank waited for: a job that gets here is in no good state.
// Without the bound, a rank could fill the owner's memory with cancels alone.
inline constexpr std::size_t kMaxUnsettled = 16384;

// How far a rank's sequence may be ahead of the newest operation that all ranks are done with, if
// the owner sees every operation. A program would have to issue a million without waiting for any.
inline constexpr std::uint64_t kDedicatedReach = std::uint64_t{1} << 20;

// The states of one operation at an owner.
enum class OwnerState : std::uint8_t {
  opening,  // some rank has not opened it
  adding,   // chunks become complete, and go out as results
  failed,   // remembered until it is cancelled
};

// An operation is forgotten after its last result; a failed one after its cancels.
enum class OwnerStep : std::uint8_t { open_last, fail };

inline constexpr Transition<OwnerState, OwnerStep> kOwnerTransitions[] = {
    {OwnerState::opening, OwnerStep::open_last, OwnerState::adding},
    {OwnerState::opening, OwnerStep::fail, OwnerState::failed},
    {OwnerState::adding, OwnerStep::fail, OwnerState::failed},
};

enum class OwnerRole : std::uint8_t {
  root,    // its sums are the results
  deputy,  // its sums go to the owner above in open and segment frames
};

// Results to make between two calls to pause(), when the connections get their turn: a few bytes of
// every rank may make the result of a whole chunk.
inline constexpr std::size_t kBurstBytes = 2u << 20;

struct OwnerDuty {
  OwnerRole role = OwnerRole::root;
  std::vector<Rank> speakers = {};  // in the order of the sums; empty: all ranks
  // How far ahead ranks may go. The default takes any sequence, because an owner may not see the
  // exchanges among workers.
  std::uint64_t reach = wire::kMaxSequence;
  // Whether every rank cancels a failed operation here, and not only ranks that have opened it.
  bool all_cancel = true;
  std::size_t burst = kBurstBytes;
  // Shared by all owners and deputies of one lane, as one adds at a time; null: its own.
  std::shared_ptr<Scratch> scratch = {};
};

class Owner {
 public:
  // Messages for every speaker alike or, from a deputy, for the owner above, in the order in which
  // they must be sent. A fail message is for the speakers.
  using Outbox = std::vector<wire::Message>;

  Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
        OwnerDuty duty = {});

  // The part of on_message's checks that needs no payload: an error means that the rank broke the
  // protocol, and that nothing of the frame is worth receiving.
  Status accepts(Rank rank, const wire::FrameHeader& header) const;

  // The ranks whose messages it takes.
  const std::vector<Rank>& speakers() const { return speakers_; }

  // Takes an open, segment, cancel, refuse or decline frame. An error means that the rank broke the
  // protocol. If ranks disagree, that is no such error: the outbox gets a fail message, and the
  // operation is forgotten once every rank has cancelled it, or every rank that has opened it.
  Status on_message(Rank rank, wire::Message message, Outbox& outbox);

  // A paused owner takes everything in but makes no results; its ranks' windows then stop them. On
  // resuming, the outbox gets the results of chunks that have become complete. An owner pauses by
  // itself once it has made many since it last resumed, so that these can leave before it makes
  // more.
  void pause(bool paused, Outbox& outbox);
  bool is_paused() const { return paused_; }

  // The costs by which formats for results are chosen.
  void set_costs(const Costs& costs) { costs_ = costs; }

  // None if the operation is not known or is forgotten.
  std::optional<OwnerState> state(std::uint64_t seq) const;

  // The speakers that an operation waits for here: those that have not opened it or, if all have,
  // those that still owe a chunk.
  std::vector<Rank> missing(std::uint64_t seq) const;

  std::size_t operations() const { return operations_.size(); }
  std::size_t buffered_bytes() const { return buffered_; }

  // Bytes of its buffers and of its book of operations; and the most that an owner of such a
  // communicator takes, with results on their way, if all ranks keep to their windows.
  std::size_t memory() const;
  static std::size_t memory_needed(const wire::Topology& topology);

 private:
  // From here on a speaker is its place among the speakers.
  using Speaker = std::size_t;
  enum Mark : std::uint8_t { opened = 1, cancelled = 2, unsettled = 4 };
  struct Operation {
    OwnerState state = OwnerState::opening;
    std::vector<std::uint8_t> marks;  // per speaker
    std::vector<std::uint64_t> next;  // per speaker, once it has opened; empty before any has
    wire::Descriptor descriptor;      // of all that have opened
    ChunkGrid grid;
    ChunkSequence chunks;
    std::map<std::uint64_t, std::vector<Contribution>> pending;
    std::uint64_t announced = 0;  // the smallest of `next`, once all have opened
    std::size_t holding_up = 0;   // speakers that have not announced a later chunk

    // Takes the chunk that a speaker contributes to next; true if that may complete a chunk.
    bool announce(Speaker speaker, std::uint64_t chunk);
    void find_announced();
    bool has(Speaker speaker, Mark mark) const { return marks[speaker] & mark; }
    bool has_failed() const { return state == OwnerState::failed; }
    void move(OwnerStep step) { state = next_state(kOwnerTransitions, state, step); }
    bool all_have(Mark mark) const;
    bool any_has(Mark mark) const;
    Speaker first_with(Mark mark) const;
  };
  // What counts for one speaker across its operations.
  struct Account {
    std::size_t in_flight = 0;       // as it costs in the window
    std::size_t unsettled = 0;       // operations
    std::uint64_t opened_up_to = 0;  // the least sequence that it may open next
  };

  static std::size_t memory_of_operations(std::size_t count, std::size_t world_size);
  Status may_open(Speaker speaker, std::uint64_t seq) const;
  Status may_contribute(Speaker speaker, const wire::FrameHeader& header) const;
  Status may_settle(Speaker speaker, std::uint64_t seq, bool is_cancel) const;
  Status on_open(Speaker speaker, const wire::FrameHeader& header,
                 const wire::Descriptor& descriptor, Outbox& outbox);
  Status on_segment(Speaker speaker, const wire::FrameHeader& header, Bytes payload,
                    Outbox& outbox);
  void on_cancel(Speaker speaker, std::uint64_t seq);
  void on_refuse(Speaker speaker, std::uint64_t seq, const Error& error, Outbox& outbox);
  const Operation* find(std::uint64_t seq) const;
  Operation& find_or_create(std::uint64_t seq);
  std::optional<Speaker> speaker_of(Rank rank) const;
  static Status check_next(const wire::Descriptor& descriptor, const ChunkSequence& chunks,
                           std::uint64_t after, std::uint64_t next);
  void settle(Speaker speaker, Operation& operation);
  void disagree(std::uint64_t seq, Operation& operation, Speaker speaker,
                const wire::Descriptor& descriptor, Outbox& outbox);
  void fail(std::uint64_t seq, Operation& operation, const Error& error, Outbox& outbox);
  void give_up(Operation& operation);
  void forget_if_settled(std::uint64_t seq);
  void emit_complete(std::uint64_t seq, Operation& operation, Outbox& outbox);
  wire::Message reduce_first(std::uint64_t seq, Operation& operation, std::uint64_t announced);
  Reduction reduction_of(const wire::Descriptor& descriptor) const;
  static std::uint64_t first_announced(const Operation& operation, std::uint64_t announced);
  wire::Message open_message(std::uint64_t seq, const Operation& operation) const;
  wire::Message sum_message(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                            Segment sum) const;
  void give_back(const std::vector<Contribution>& contributions);
  void release(Operation& operation);
  void close(std::uint64_t seq);

  wire::Topology topology_;
  std::uint32_t lane_;
  std::uint32_t owner_;
  OwnerRole role_;
  std::uint64_t reach_;
  bool all_cancel_;
  std::size_t burst_;
  std::vector<Rank> speakers_;
  bool paused_ = false;
  std::size_t made_ = 0;  // bytes of results, since it last resumed
  Costs costs_;
  std::shared_ptr<Scratch> scratch_;
  std::map<std::uint64_t, Operation> operations_;
  std::vector<Account> accounts_;    // per speaker
  std::uint64_t settled_up_to_ = 0;  // after the newest operation that all ranks are done with
  std::size_t buffered_ = 0;         // bytes
  std::size_t contributions_ = 0;
};

}  // namespace sparsewire::proto
