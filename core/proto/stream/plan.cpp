// Cuts tensors into chunks and deals the chunks out to streams.
#include "proto/stream/plan.hpp"

#include <algorithm>

namespace sparsewire::proto {
namespace {

// Chunks per stream that keep the pipeline busy in tensors too small for chunks of full size.
constexpr std::uint64_t kChunksPerStream = 8;

// Smaller ones cost more by their messages than they gain in the pipeline.
constexpr std::uint64_t kMinPipelined = 8192;

// Below this a tensor stays in one piece: there latency counts, not that all owners share the work.
constexpr std::uint64_t kMinShare = 4096;

std::uint64_t min_chunk_elements(std::uint64_t count, std::uint64_t streams) {
  return std::clamp(ceil_div(count, streams), kMinShare, kMinPipelined);
}

}  // namespace

BlockLayout ChunkGrid::layout(std::uint64_t chunk) const {
  const std::uint64_t begin = chunk / columns * chunk_elements;
  return {static_cast<std::size_t>(std::min(chunk_elements, count - begin)), element_size, block};
}

ChunkGrid make_grid(const wire::Descriptor& descriptor, const wire::Topology& topology) {
  const std::uint64_t block = descriptor.row == 1 ? topology.block : descriptor.row;
  const std::uint64_t least = min_chunk_elements(descriptor.count, topology.streams());
  const std::uint64_t even = ceil_div(descriptor.count, topology.streams() * kChunksPerStream);
  const std::uint64_t clamped =
      std::clamp(ceil_div(even, block) * block, ceil_div(least, block) * block,
                 wire::kMaxChunkElements / block * block);
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
