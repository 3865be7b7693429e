// Cuts tensors into chunks and deals the chunks out to streams.
#include "proto/stream/plan.hpp"

#include <algorithm>

namespace sparsewire::proto {
namespace {

// Chunks per stream that keep the pipeline busy in tensors too small for chunks of full size.
constexpr std::uint64_t kChunksPerStream = 8;

// Smaller chunks cost more by their messages than they gain in the pipeline.
constexpr std::uint64_t kMinPipelined = 8192;

// Below this a tensor stays in one piece: there latency counts more than sharing the work among all
// owners.
constexpr std::uint64_t kMinShare = 4096;

std::uint64_t min_chunk_elements(std::uint64_t count, std::uint64_t streams) {
  return std::clamp(ceil_div(count, streams), kMinShare, kMinPipelined);
}

// The most elements of a chunk. Many ranks may each have a window's segments in flight, so chunks
// are so small that the segments that wait for the last rank do not take more memory with more
// ranks or a larger tensor.
std::uint64_t most_elements(std::uint64_t block, std::size_t element_size,
                            const wire::Topology& topology) {
  const std::uint64_t senders = std::uint64_t{topology.world_size} * topology.lanes;
  const std::uint64_t share = kMaxWaitingBytes / (kSegmentsInWindow * senders * element_size);
  return std::max(std::min(share, wire::kMaxChunkElements) / block, std::uint64_t{1}) * block;
}

}  // namespace

// Few bytes in flight keep the ranks in step: a rank that runs far ahead at one owner ends early
// there, and leaves its link idle at the end. With few owners, larger windows keep a link busy;
// with very many, each gets less. A quarter is left for the segment that a window ends in.
std::uint32_t default_window(std::size_t owners, std::size_t lanes) {
  constexpr std::size_t kib = 1024;
  const std::size_t share = kMaxWaitingBytes / 4 * 3 / (owners * lanes);
  const std::size_t window = std::min(std::max(256 * kib / owners, 64 * kib), share);
  return static_cast<std::uint32_t>(std::max(window, 16 * kib));
}

BlockLayout ChunkGrid::layout(std::uint64_t chunk) const {
  const std::uint64_t begin = chunk / columns * chunk_elements;
  return {static_cast<std::size_t>(std::min(chunk_elements, count - begin)), element_size, block};
}

ChunkGrid make_grid(const wire::Descriptor& descriptor, const wire::Topology& topology) {
  const std::uint64_t block = descriptor.row == 1 ? topology.block : descriptor.row;
  const std::uint64_t streams = topology.streams();
  const std::uint64_t even = ceil_div(descriptor.count, streams * kChunksPerStream);
  const std::uint64_t most = most_elements(block, element_size(descriptor.dtype), topology);
  const std::uint64_t wanted = min_chunk_elements(descriptor.count, streams);
  const std::uint64_t least = std::min(ceil_div(wanted, block) * block, most);
  const std::uint64_t clamped = std::clamp(ceil_div(even, block) * block, least, most);
  ChunkGrid grid{
      .count = descriptor.count,
      .chunk_elements = clamped,
      .element_size = element_size(descriptor.dtype),
      .block = static_cast<std::size_t>(block),
  };
  const std::uint64_t columns = std::min(topology.streams(), grid.chunks());
  if (descriptor.is_striped && columns > 1) {
    grid.columns = columns;
    grid.count = ceil_div(ceil_div(descriptor.count, block), grid.columns) * block;
  }
  return grid;
}

ChunkSequence chunks_of(std::uint32_t lane, std::uint32_t owner, std::uint64_t seq,
                        const ChunkGrid& grid, const wire::Topology& topology) {
  const std::uint64_t streams = topology.streams();
  const std::uint64_t stream = lane + std::uint64_t{topology.lanes} * owner;
  return {.first = (stream + streams - seq % streams) % streams,
          .step = streams,
          .chunks = grid.chunks()};
}

std::vector<std::uint32_t> owners_of(std::uint32_t lane, std::uint64_t seq, const ChunkGrid& grid,
                                     const wire::Topology& topology) {
  const std::uint64_t streams = topology.streams();
  std::vector<std::uint32_t> owners;
  for (std::uint64_t chunk = 0; chunk < std::min(grid.chunks(), streams); ++chunk) {
    const std::uint64_t stream = (chunk + seq % streams) % streams;
    if (stream % topology.lanes != lane) continue;
    owners.push_back(static_cast<std::uint32_t>(stream / topology.lanes));
  }
  return owners;
}

std::uint32_t lane_of(std::uint64_t chunk, std::uint64_t seq, const wire::Topology& topology) {
  const std::uint64_t streams = topology.streams();
  return static_cast<std::uint32_t>((chunk % streams + seq % streams) % streams % topology.lanes);
}

}  // namespace sparsewire::proto
