// The plan of an operation: how its tensor is cut into chunks, and which owner gets which chunk. A
// pure function of values that all ranks agree on, so no rank ever has to ask.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {

// Segments that every window has room for: a segment costs its bytes in the window, but at most
// this part of it. So a window may be small, which keeps the ranks in step, and large segments
// still follow each other without a pause.
inline constexpr std::size_t kSegmentsInWindow = 3;

// What an open operation counts in a window. This bounds how many may wait at an owner.
inline constexpr std::size_t kOpenCost = 64;

// The least that a segment counts: an owner keeps at least as much beside the payload.
inline constexpr std::size_t kSegmentCostMin = 256;

// What a segment counts in a window. Workers stop sending by it, and owners hold them to it.
inline std::size_t segment_cost(std::size_t payload_bytes, std::size_t window_bytes) {
  const std::size_t bytes = std::max(wire::kHeaderBytes + payload_bytes, kSegmentCostMin);
  return std::min(bytes, window_bytes / kSegmentsInWindow + 1);
}

// What segments may take at the owners of a process, on all lanes together, while they wait for the
// last rank, if all ranks fill their windows. It does not follow SPARSEWIRE_MEMORY, which may
// differ among ranks: all must cut a tensor alike.
inline constexpr std::size_t kMaxWaitingBytes = 24u << 20;

// Bytes that a rank may have in flight at an owner, if no setting says so.
std::uint32_t default_window(std::size_t owners, std::size_t lanes);

// The chunks of one tensor. A tensor without elements still has one chunk, of no elements: every
// operation then has a chunk in some stream, and ranks that disagree on the size meet there. A
// sparse vector is dealt out by stripes (see proto/sparse/stripes.hpp) into columns, and each
// column is cut into chunks: chunk c is piece c / columns of column c % columns.
struct ChunkGrid {
  std::uint64_t count = 0;  // elements of one column
  std::uint64_t chunk_elements = 1;
  std::size_t element_size = 4;  // bytes
  std::size_t block = 256;       // elements
  std::uint64_t columns = 1;

  std::uint64_t chunks() const {
    return count == 0 ? 1 : columns * ceil_div(count, chunk_elements);
  }
  // Only if there is one column.
  std::uint64_t offset_bytes(std::uint64_t chunk) const {
    return chunk * chunk_elements * element_size;
  }
  BlockLayout layout(std::uint64_t chunk) const;
};

// Neighbours in a grid of one column: `first` up to, not including, `end`.
struct ChunkRange {
  std::uint64_t first;
  std::uint64_t end;

  constexpr std::size_t chunks() const { return static_cast<std::size_t>(end - first); }
};

ChunkGrid make_grid(const wire::Descriptor& descriptor, const wire::Topology& topology);

// The chunks that one lane carries to one owner: first, first + step, ... below `chunks`.
struct ChunkSequence {
  std::uint64_t first = 0;
  std::uint64_t step = 1;
  std::uint64_t chunks = 0;

  bool empty() const { return first >= chunks; }
  bool contains(std::uint64_t chunk) const {
    return chunk >= first && chunk < chunks && (chunk - first) % step == 0;
  }
  // The chunk after this one, or kNoChunk.
  std::uint64_t after(std::uint64_t chunk) const {
    return chunk + step < chunks ? chunk + step : wire::kNoChunk;
  }
};

// Chunk 0 starts at a stream that moves on with every operation, so that the many operations of a
// single chunk load all owners alike.
ChunkSequence chunks_of(std::uint32_t lane, std::uint32_t owner, std::uint64_t seq,
                        const ChunkGrid& grid, const wire::Topology& topology);

// The owners that the lane carries chunks to. If chunks are few, there are no more owners than
// chunks.
std::vector<std::uint32_t> owners_of(std::uint32_t lane, std::uint64_t seq, const ChunkGrid& grid,
                                     const wire::Topology& topology);

// The lane that carries a chunk.
std::uint32_t lane_of(std::uint64_t chunk, std::uint64_t seq, const wire::Topology& topology);

}  // namespace sparsewire::proto
