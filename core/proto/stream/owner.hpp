// The owner's half of the stream protocol: gathers what the ranks send of each chunk, knows by
// their look-ahead when a chunk is complete, adds it up and sends the union once to every rank.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/stream/plan.hpp"
#include "proto/stream/reduce.hpp"
#include "wire/descriptor.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

class Owner {
 public:
  // Messages for every rank alike, in the order in which they must be sent.
  using Outbox = std::vector<wire::Message>;

  Owner(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner);

  // Takes an open, segment, cancel or refuse frame. An error means that the rank broke the
  // protocol. Ranks that disagree do not: the outbox gets a fail message, and the operation is
  // forgotten once every rank has cancelled it.
  Status on_message(Rank rank, wire::Message message, Outbox& outbox);

  // A paused owner takes everything in but makes no results; its ranks' windows then stop them. On
  // resuming, the outbox gets what has become complete.
  void pause(bool paused, Outbox& outbox);
  bool is_paused() const { return paused_; }

  // What the choice of formats for results rests on.
  void set_costs(const Costs& costs) { costs_ = costs; }

  // The ranks that an operation waits for here; all that have not opened it, or else all that
  // still owe a chunk.
  std::vector<Rank> missing(std::uint64_t seq) const;

  std::size_t operations() const { return operations_.size(); }
  std::size_t buffered_bytes() const;

 private:
  struct RankState {
    bool opened = false;
    bool cancelled = false;
    wire::Descriptor descriptor;
    std::uint64_t next = wire::kNoChunk;
  };
  struct Operation {
    bool failed = false;
    std::vector<RankState> ranks;
    ChunkGrid grid;
    ChunkSequence chunks;
    std::map<std::uint64_t, std::vector<Contribution>> pending;
  };

  Status on_open(Rank rank, const wire::FrameHeader& header, const wire::Descriptor& descriptor,
                 Outbox& outbox);
  Status on_segment(Rank rank, const wire::FrameHeader& header, Bytes payload, Outbox& outbox);
  Status on_cancel(Rank rank, std::uint64_t seq);
  void on_refuse(std::uint64_t seq, const Error& error, Outbox& outbox);
  Operation& find_or_create(std::uint64_t seq);
  static Rank first_disagreeing(const Operation& operation, const wire::Descriptor& descriptor);
  static Status check_next(const wire::Descriptor& descriptor, const ChunkSequence& chunks,
                           std::uint64_t after, std::uint64_t next);
  void fail(std::uint64_t seq, Operation& operation, Rank a, Rank b, Outbox& outbox);
  void emit_complete(std::uint64_t seq, Operation& operation, Outbox& outbox);
  wire::Message reduce_first(std::uint64_t seq, Operation& operation, std::uint64_t announced);
  void give_back(const std::vector<Contribution>& contributions);
  void release(Operation& operation);
  void close(std::uint64_t seq);

  wire::Topology topology_;
  std::uint32_t lane_;
  std::uint32_t owner_;
  bool paused_ = false;
  Costs costs_;
  Scratch scratch_;
  std::map<std::uint64_t, Operation> operations_;
  std::vector<std::size_t> buffered_;         // bytes, per rank
  std::vector<std::size_t> open_operations_;  // per rank
  std::vector<std::uint64_t> opened_up_to_;   // the sequence a rank may open next, or later
};

}  // namespace sparsewire::proto
