// The owner's half of the stream protocol: gathers what the ranks send of each chunk, knows by
// their look-ahead when a chunk is complete, adds it up and sends the union once to every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/transitions.hpp"
#include "proto/stream/plan.hpp"
#include "proto/stream/reduce.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

// Operations that one rank may have cancelled or refused while others have not caught up. Each is
// an operation that failed, and that nobody waited for: a job that gets here is in no good state,
// and beyond it a rank could fill the owner's memory with cancels alone.
inline constexpr std::size_t kMaxUnsettled = 16384;

// How far ahead of the newest operation that all ranks are done with a rank may name one, where the
// owner sees every operation. A program would have to issue a million without waiting for any.
inline constexpr std::uint64_t kDedicatedReach = std::uint64_t{1} << 20;

// What may become of one operation at an owner.
enum class OwnerState : std::uint8_t {
  opening,  // some rank has not opened it
  adding,   // chunks become complete, and go out as results
  failed,   // remembered until all ranks have cancelled it
};

// An operation whose last result is out is forgotten, and so is a failed one in the end.
enum class OwnerStep : std::uint8_t { open_last, fail };

inline constexpr Transition<OwnerState, OwnerStep> kOwnerTransitions[] = {
    {OwnerState::opening, OwnerStep::open_last, OwnerState::adding},
    {OwnerState::opening, OwnerStep::fail, OwnerState::failed},
    {OwnerState::adding, OwnerStep::fail, OwnerState::failed},
};

class Owner {
 public:
  // Messages for every rank alike, in the order in which they must be sent.
  using Outbox = std::vector<wire::Message>;

  // Without a reach any sequence is taken: an owner does not see the exchanges among workers.
  Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
        std::uint64_t reach = wire::kMaxSequence);

  // The part of on_message's checks that needs no payload: an error means that the rank broke the
  // protocol, and that nothing of the frame is worth receiving.
  Status accepts(Rank rank, const wire::FrameHeader& header) const;

  // Takes an open, segment, cancel or refuse frame. An error means that the rank broke the
  // protocol. Ranks that disagree do not: the outbox gets a fail message, and the operation is
  // forgotten once every rank has cancelled it.
  Status on_message(Rank rank, wire::Message message, Outbox& outbox);

  // A paused owner takes everything in but makes no results; its ranks' windows then stop them. On
  // resuming, the outbox gets what has become complete. An owner pauses by itself once it has made
  // much since it last resumed, so that its results can leave before it makes more.
  void pause(bool paused, Outbox& outbox);
  bool is_paused() const { return paused_; }

  // What the choice of formats for results rests on.
  void set_costs(const Costs& costs) { costs_ = costs; }

  // None where nothing of the operation is known, or all of it is forgotten.
  std::optional<OwnerState> state(std::uint64_t seq) const;

  // The ranks that an operation waits for here; all that have not opened it, or else all that
  // still owe a chunk.
  std::vector<Rank> missing(std::uint64_t seq) const;

  std::size_t operations() const { return operations_.size(); }
  std::size_t buffered_bytes() const { return buffered_; }

  // What it takes: buffers and the book of operations. And the most that an owner of such a
  // communicator takes, and its results on their way, where all ranks keep to their windows.
  std::size_t memory() const;
  static std::size_t memory_needed(const wire::Topology& topology);

 private:
  enum Mark : std::uint8_t { opened = 1, cancelled = 2, unsettled = 4 };
  struct Operation {
    OwnerState state = OwnerState::opening;
    std::vector<std::uint8_t> marks;  // per rank
    std::vector<std::uint64_t> next;  // per rank, once it has opened; none while nobody has
    wire::Descriptor descriptor;      // of all ranks that have opened
    ChunkGrid grid;
    ChunkSequence chunks;
    std::map<std::uint64_t, std::vector<Contribution>> pending;

    bool has(Rank rank, Mark mark) const { return marks[static_cast<std::size_t>(rank)] & mark; }
    bool has_failed() const { return state == OwnerState::failed; }
    void move(OwnerStep step) { state = next_state(kOwnerTransitions, state, step); }
    bool all_have(Mark mark) const;
    Rank first_with(Mark mark) const;
  };
  // What counts for one rank across its operations.
  struct Account {
    std::size_t in_flight = 0;       // as it costs in the window
    std::size_t unsettled = 0;       // operations
    std::uint64_t opened_up_to = 0;  // the sequence that it may open next, or later
  };

  static std::size_t memory_of_operations(std::size_t count, std::size_t world_size);
  Status may_open(Rank rank, std::uint64_t seq) const;
  Status may_contribute(Rank rank, const wire::FrameHeader& header) const;
  Status may_settle(Rank rank, std::uint64_t seq, bool is_cancel) const;
  Status on_open(Rank rank, const wire::FrameHeader& header, const wire::Descriptor& descriptor,
                 Outbox& outbox);
  Status on_segment(Rank rank, const wire::FrameHeader& header, Bytes payload, Outbox& outbox);
  void on_cancel(Rank rank, std::uint64_t seq);
  void on_refuse(Rank rank, std::uint64_t seq, const Error& error, Outbox& outbox);
  const Operation* find(std::uint64_t seq) const;
  Operation& find_or_create(std::uint64_t seq);
  Account& account(Rank rank) { return accounts_[static_cast<std::size_t>(rank)]; }
  const Account& account(Rank rank) const { return accounts_[static_cast<std::size_t>(rank)]; }
  static Status check_next(const wire::Descriptor& descriptor, const ChunkSequence& chunks,
                           std::uint64_t after, std::uint64_t next);
  void settle(Rank rank, Operation& operation);
  void disagree(std::uint64_t seq, Operation& operation, Rank rank,
                const wire::Descriptor& descriptor, Outbox& outbox);
  void fail(std::uint64_t seq, Operation& operation, const Error& error, Outbox& outbox);
  void give_up(Operation& operation);
  void emit_complete(std::uint64_t seq, Operation& operation, Outbox& outbox);
  wire::Message reduce_first(std::uint64_t seq, Operation& operation, std::uint64_t announced);
  void give_back(const std::vector<Contribution>& contributions);
  void release(Operation& operation);
  void close(std::uint64_t seq);

  wire::Topology topology_;
  std::uint32_t lane_;
  std::uint32_t owner_;
  std::uint64_t reach_;
  bool paused_ = false;
  std::size_t made_ = 0;  // bytes of results, since it last resumed
  Costs costs_;
  Scratch scratch_;
  std::map<std::uint64_t, Operation> operations_;
  std::vector<Account> accounts_;    // per rank
  std::uint64_t settled_up_to_ = 0;  // behind the newest operation that all ranks are done with
  std::size_t buffered_ = 0;         // bytes
  std::size_t contributions_ = 0;
};

}  // namespace sparsewire::proto
