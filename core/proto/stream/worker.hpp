// The worker's half of the protocol on one lane: all operations in flight, towards all owners.
// Operations go out in the order of their sequence numbers, within a window per owner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "proto/stream/worker_stream.hpp"

namespace sparsewire::proto {

class Worker {
 public:
  Worker(const wire::Topology& topology, std::uint32_t lane);

  // Starts an operation. False where this lane has no part in it; source and sink are not kept
  // then. Sequence numbers rise.
  bool submit(std::uint64_t seq, const wire::Descriptor& descriptor, const ChunkGrid& grid,
              std::unique_ptr<Source> source, std::shared_ptr<Sink> sink);

  // The next message for an owner. None does not mean that all is sent: see has_work().
  std::optional<wire::Message> poll(std::uint32_t owner);

  // Whether another poll() can get further without a result coming in first.
  bool has_work(std::uint32_t owner);

  // Takes a result frame; true where it ended its operation on this lane.
  Result<bool> on_result(std::uint32_t owner, const wire::FrameHeader& header,
                         const Bytes& payload);

  // Where the payload of a result may be received directly, or null.
  std::byte* place(std::uint32_t owner, const wire::FrameHeader& header) const;

  // Forgets an operation, whatever its state; false where it is not in flight.
  bool drop(std::uint64_t seq);

  // Owners that have not yet answered for an operation.
  std::vector<std::uint32_t> waiting_for(std::uint64_t seq) const;

  // What of an owner's window is in use.
  std::size_t bytes_in_flight(std::uint32_t owner) const { return owners_[owner].in_flight; }

  std::uint64_t chunks_empty() const { return chunks_empty_; }

 private:
  struct Operation {
    std::unique_ptr<Source> source;
    std::shared_ptr<Sink> sink;
    std::vector<std::unique_ptr<WorkerStream>> streams;  // per owner; null where it has no chunk
    std::size_t unfinished = 0;
  };
  struct Sending {
    std::uint64_t next = 0;     // operations below this one are sent
    std::size_t in_flight = 0;  // bytes
  };

  WorkerStream* stream_of(std::uint64_t seq, std::uint32_t owner) const;
  WorkerStream* next_to_send(std::uint32_t owner);

  wire::Topology topology_;
  std::uint32_t lane_;
  std::map<std::uint64_t, Operation> operations_;
  std::vector<Sending> owners_;
  std::uint64_t chunks_empty_ = 0;
};

}  // namespace sparsewire::proto
