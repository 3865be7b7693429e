// What feeds a worker's stream and what receives its results; the stream does not know which.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "wire/frame.hpp"

namespace sparsewire::proto {

struct Segment {
  wire::Format format = wire::Format::empty;
  Codec codec = Codec::raw;
  Bytes payload;
};

class Source {
 public:
  virtual ~Source() = default;

  // This rank's values of the chunk, or nothing where all of them are zero. Chunks are asked for
  // once each. A borrowed payload stays valid until the operation ends.
  virtual std::optional<Segment> segment(std::uint64_t chunk) = 0;
};

class Sink {
 public:
  virtual ~Sink() = default;

  // Where a dense result of `size` bytes may be received directly, or null to have it come through
  // write() alone; write() is called with that very memory afterwards.
  virtual std::byte* place(std::uint64_t chunk, std::size_t size) = 0;

  // Takes the result of a chunk; an error where the payload is not what its format says.
  virtual Status write(std::uint64_t chunk, const Segment& segment) = 0;
};

}  // namespace sparsewire::proto
