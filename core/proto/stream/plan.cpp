// Cuts tensors into chunks and deals the chunks out to streams.
#include "proto/stream/plan.hpp"

#include <algorithm>

namespace sparsewire::proto {
namespace {

// Below this a tensor stays in one piece: for small tensors latency counts, not balance.
constexpr std::uint64_t kMinChunkElements = 8192;

// Chunks per stream that keep the pipeline busy in tensors too small for chunks of full size.
constexpr std::uint64_t kChunksPerStream = 4;

}  // namespace

BlockLayout ChunkGrid::layout(std::uint64_t chunk) const {
  const std::uint64_t begin = chunk * chunk_elements;
  return {static_cast<std::size_t>(std::min(chunk_elements, count - begin)), element_size, block};
}

ChunkGrid make_grid(const wire::Descriptor& descriptor, const wire::Topology& topology) {
  const std::uint64_t even = ceil_div(descriptor.count, topology.streams() * kChunksPerStream);
  const std::uint64_t whole_blocks = ceil_div(even, std::uint64_t{topology.block}) * topology.block;
  return {
      .count = descriptor.count,
      .chunk_elements =
          std::clamp(whole_blocks, kMinChunkElements, std::uint64_t{wire::kMaxChunkElements}),
      .element_size = element_size(descriptor.dtype),
      .block = topology.block,
  };
}

ChunkSequence chunks_of(std::uint32_t lane, std::uint32_t owner, std::uint64_t seq,
                        const ChunkGrid& grid, const wire::Topology& topology) {
  const std::uint64_t streams = topology.streams();
  const std::uint64_t stream = lane + std::uint64_t{topology.lanes} * owner;
  return {.first = (stream + streams - seq % streams) % streams,
          .step = streams,
          .chunks = grid.chunks()};
}

}  // namespace sparsewire::proto
