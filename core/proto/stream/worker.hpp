// The worker's half of the protocol on one lane: all operations in flight, towards all owners.
// Operations go out in the order of their sequence numbers, within a window per owner.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/index_set.hpp"
#include "base/transitions.hpp"
#include "proto/stream/plan.hpp"
#include "proto/stream/source.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

// What an owner knows of an operation.
enum class Hearing : std::uint8_t { unheard, open, finished };

enum class HearingStep : std::uint8_t { message, result, last_result };

inline constexpr Transition<Hearing, HearingStep> kHearingTransitions[] = {
    {Hearing::unheard, HearingStep::message, Hearing::open},
    {Hearing::open, HearingStep::message, Hearing::open},
    {Hearing::open, HearingStep::result, Hearing::open},
    {Hearing::open, HearingStep::last_result, Hearing::finished},
};

// What one operation sends to one owner on this lane, and gets back. It announces, in every
// message, the next chunk it will contribute to (OmniReduce's look-ahead), so that the owner knows
// without asking when nobody else will add to a chunk.
class WorkerStream {
 public:
  WorkerStream(std::uint64_t seq, const wire::Descriptor& descriptor, const ChunkSequence& chunks,
               std::size_t window_bytes, Source& source, Sink& sink);

  // The next message for the owner. None means that everything is sent or, while sent_all() is
  // false, that the look-ahead needs another call: each call reads a bounded number of chunks.
  std::optional<wire::Message> poll();

  // Checks and applies a result; returns the bytes of the window that it gives back.
  Result<std::size_t> on_result(const wire::FrameHeader& header, const Bytes& payload);

  // The memory to receive the payload of this result into directly, or null.
  std::byte* place(const wire::FrameHeader& header) const;

  bool sent_all() const { return hearing_ != Hearing::unheard && !pending_; }
  // Whether poll() has to wait until the source knows more.
  bool waits() const { return !ahead_ && cursor_ != wire::kNoChunk && !source_.knows(cursor_); }
  Hearing hearing() const { return hearing_; }
  std::size_t bytes_in_flight() const { return bytes_in_flight_; }
  std::uint64_t chunks_empty() const { return chunks_empty_; }

 private:
  struct Ahead {
    std::uint64_t chunk;
    Segment segment;
  };
  struct InFlight {
    std::uint64_t chunk;
    std::size_t bytes;
  };

  void move(HearingStep step) { hearing_ = next_state(kHearingTransitions, hearing_, step); }
  bool look_ahead();
  wire::Message open_message() const;
  wire::Message segment_message() const;
  void count_in_flight(const wire::Message& message);
  std::size_t release_up_to(std::uint64_t chunk);
  Status check_order(const wire::FrameHeader& header) const;
  // The first chunk that this rank has announced and that no result has come for, or kNoChunk.
  std::uint64_t oldest_unanswered() const;
  std::uint64_t ahead_chunk() const { return ahead_ ? ahead_->chunk : wire::kNoChunk; }

  std::uint64_t seq_;
  wire::Descriptor descriptor_;
  ChunkSequence chunks_;
  std::size_t window_bytes_;
  Source& source_;
  Sink& sink_;

  std::uint64_t cursor_;          // the next chunk to look at, or kNoChunk
  std::optional<Ahead> pending_;  // announced, not yet sent
  std::optional<Ahead> ahead_;    // found, not yet announced
  Hearing hearing_ = Hearing::unheard;

  std::deque<InFlight> in_flight_;   // sent and without a result
  std::size_t bytes_in_flight_ = 0;  // as they cost in the window
  std::uint64_t chunks_empty_ = 0;
  std::optional<std::uint64_t> expected_;  // the chunk that the last result announced
};

class Worker {
 public:
  // Talks to all owners, or to one.
  Worker(const wire::Topology& topology, std::uint32_t lane,
         std::optional<std::uint32_t> owner = {});

  // Starts an operation. False if this lane has no part in it; then source and sink are not kept.
  // Sequence numbers rise.
  bool submit(std::uint64_t seq, const wire::Descriptor& descriptor, const ChunkGrid& grid,
              std::unique_ptr<Source> source, std::shared_ptr<Sink> sink);

  // The next message for an owner. None does not mean that everything is sent: see has_work().
  std::optional<wire::Message> poll(std::uint32_t owner);

  // Whether another poll() can get further without a result coming in first.
  bool has_work(std::uint32_t owner);

  // The first owner from `from` on for which there is work, or as many as owners.
  std::uint32_t next_with_work(std::uint32_t from);

  // Takes a result frame; true if it ended its operation on this lane.
  Result<bool> on_result(std::uint32_t owner, const wire::FrameHeader& header,
                         const Bytes& payload);

  // The memory to receive the payload of a result into directly, or null.
  std::byte* place(std::uint32_t owner, const wire::FrameHeader& header) const;

  // Forgets an operation, whatever its state; false if it is not in flight.
  bool drop(std::uint64_t seq);

  // Owners that have not yet answered for an operation.
  std::vector<std::uint32_t> waiting_for(std::uint64_t seq) const;

  // Owners that know of the operation, and must be told if it is given up.
  std::vector<std::uint32_t> opened(std::uint64_t seq) const;

  // The bytes of an owner's window that are in use.
  std::size_t bytes_in_flight(std::uint32_t owner) const {
    return owners_[owner - first_].in_flight;
  }

  std::uint64_t chunks_empty() const { return chunks_empty_; }

 private:
  struct Operation {
    std::unique_ptr<Source> source;
    std::shared_ptr<Sink> sink;
    std::map<std::uint32_t, WorkerStream> streams;  // to owners that have chunks
    std::size_t unfinished = 0;

    WorkerStream* to(std::uint32_t owner) {
      const auto at = streams.find(owner);
      return at == streams.end() ? nullptr : &at->second;
    }
  };
  struct Sending {
    std::uint64_t next = 0;     // operations below this one are sent
    std::size_t in_flight = 0;  // bytes
  };

  Sending& sending_to(std::uint32_t owner) { return owners_[owner - first_]; }
  std::vector<std::uint32_t> owners_with_chunks(std::uint64_t seq, const ChunkGrid& grid) const;
  WorkerStream* next_to_send(std::uint32_t owner);

  wire::Topology topology_;
  std::uint32_t lane_;
  std::optional<std::uint32_t> only_owner_;
  std::map<std::uint64_t, Operation> operations_;
  std::uint32_t first_;  // of the owners that this Worker talks to
  std::vector<Sending> owners_;
  IndexSet due_;  // owners with work: there is something to send, and room in their windows
  std::uint64_t chunks_empty_ = 0;
};

}  // namespace sparsewire::proto
