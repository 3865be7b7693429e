// Lays each chunk out densely, then copies its stripes to their places.
#include "proto/sparse/dense_output.hpp"

#include <cstring>

namespace sparsewire::proto {

DenseOutput::DenseOutput(const wire::Descriptor& descriptor, const ChunkGrid& grid, std::byte* out)
    : bytes_(descriptor.count * element_size(descriptor.dtype)),
      grid_(grid),
      stripes_(grid),
      out_(out),
      is_written_(grid.chunks()) {}

template <typename Visit>
void DenseOutput::for_each_stripe(std::uint64_t chunk, Visit&& visit) const {
  const BlockLayout layout = grid_.layout(chunk);
  const std::uint64_t column = chunk % grid_.columns;
  const std::uint64_t first_group = chunk / grid_.columns * (grid_.chunk_elements / grid_.block);
  for (std::uint64_t group = 0; group < layout.blocks(); ++group) {
    const std::uint64_t stripe = stripes_.stripe(first_group + group, column);
    const std::uint64_t to = stripe * layout.block_bytes();
    if (to >= bytes_) continue;
    visit(group * layout.block_bytes(), to,
          std::min<std::uint64_t>(layout.block_bytes(), bytes_ - to));
  }
}

std::byte* DenseOutput::place(std::uint64_t chunk, std::size_t size) {
  const bool is_whole = grid_.columns == 1 && size == grid_.layout(chunk).bytes();
  return is_whole ? out_ + grid_.offset_bytes(chunk) : nullptr;
}

Status DenseOutput::write(std::uint64_t chunk, const Segment& segment) {
  const BlockLayout layout = grid_.layout(chunk);
  std::byte* const in_place = place(chunk, layout.bytes());
  is_written_[chunk] = 1;
  if (in_place != nullptr && segment.payload.data() == in_place)
    return {};  // It was received in its place.
  const auto contribution = read_segment(kNoRank, segment, layout);
  if (!contribution) return contribution.error();
  if (in_place != nullptr) {
    write_chunk(*contribution, layout, in_place);
    return {};
  }
  const std::byte* values = contribution->values.values.data();
  std::shared_ptr<std::byte[]> scratch;
  if (segment.format != wire::Format::dense) {
    scratch = Bytes::allocate(layout.bytes());
    write_chunk(*contribution, layout, scratch.get());
    values = scratch.get();
  }
  for_each_stripe(chunk, [&](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    std::memcpy(out_ + to, values + from, bytes);
  });
  return {};
}

Status DenseOutput::write_packed(const wire::Piece& piece, const ChunkRange& range) {
  const auto packed = read_packed(piece, grid_, range);
  if (!packed) return packed.error();
  for (const wire::Piece& chunk : unpack_pieces(*packed, range, grid_.element_size)) {
    if (Status error = write(chunk.chunk, segment_of(chunk))) return error;
  }
  return {};
}

void DenseOutput::finish() {
  for (std::uint64_t chunk = 0; chunk < is_written_.size(); ++chunk) {
    if (is_written_[chunk] != 0) continue;
    for_each_stripe(chunk, [&](std::uint64_t, std::uint64_t to, std::uint64_t bytes) {
      std::memset(out_ + to, 0, bytes);
    });
  }
}

}  // namespace sparsewire::proto
