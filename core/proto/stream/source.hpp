// The interfaces of objects that feed a worker's stream (Source) and receive its results (Sink).
#pragma once

#include <memory>

#include "proto/stream/contribution.hpp"
#include "proto/stream/plan.hpp"

namespace sparsewire::proto {

class Source {
 public:
  virtual ~Source() = default;

  // This rank's values of the chunk; none if all of them are zero. Each chunk is asked for once. A
  // borrowed payload stays valid until the operation ends.
  virtual std::optional<Segment> segment(std::uint64_t chunk) = 0;

  // Whether the result of segment() is known by now.
  virtual bool knows(std::uint64_t) const { return true; }
};

class Sink {
 public:
  virtual ~Sink() = default;

  // The memory to receive a dense result of `size` bytes into directly, or null to have it come
  // through write() alone. write() is called with that very memory afterwards.
  virtual std::byte* place(std::uint64_t chunk, std::size_t size) = 0;

  // Takes the result of a chunk; an error if the payload is not what its format says.
  virtual Status write(std::uint64_t chunk, const Segment& segment) = 0;
};

// Sends another source's values in a codec of low precision.
class EncodedSource final : public Source {
 public:
  EncodedSource(std::unique_ptr<Source> source, const wire::Descriptor& descriptor,
                const ChunkGrid& grid, std::uint64_t seq, Rank rank)
      : source_(std::move(source)), descriptor_(descriptor), grid_(grid), seq_(seq), rank_(rank) {}

  std::optional<Segment> segment(std::uint64_t chunk) override {
    auto segment = source_->segment(chunk);
    if (!segment) return {};
    return encode_segment(*segment, descriptor_.segment_codec, grid_.layout(chunk),
                          rounding_key(descriptor_.seed, seq_, rank_, chunk));
  }
  bool knows(std::uint64_t chunk) const override { return source_->knows(chunk); }

 private:
  std::unique_ptr<Source> source_;
  wire::Descriptor descriptor_;
  ChunkGrid grid_;
  std::uint64_t seq_;
  Rank rank_;
};

}  // namespace sparsewire::proto
