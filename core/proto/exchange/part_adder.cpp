// Decodes what the ranks hold and reduces it.
#include "proto/exchange/part_adder.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/kernels.hpp"

namespace sparsewire::proto {
namespace {

using Pieces = std::vector<wire::Piece>;

bool is_packed(const Held& held) {
  return !held.pieces.empty() && held.pieces.front().format == wire::Format::packed;
}

// Where some rank has too many elements for packing, all go chunk by chunk.
Status unpack_all(std::vector<Held>& all, const ChunkGrid& grid, const ChunkRange& range) {
  for (Held& held : all) {
    if (!is_packed(held)) continue;
    const auto read = read_packed(held.pieces.front(), grid, range);
    if (!read) return read.error();
    held.pieces = unpack(*read, range, grid.element_size);
  }
  return {};
}

}  // namespace

Result<Pieces> PartAdder::add(std::vector<Held> all, const ChunkGrid& grid, const ChunkRange& range,
                              bool completes) {
  const bool are_packed = std::ranges::all_of(
      all, [](const Held& held) { return held.pieces.empty() || is_packed(held); });
  return are_packed ? add_packed_all(all, grid, range, completes)
                    : add_by_chunk(std::move(all), grid, range, completes);
}

Result<Pieces> PartAdder::add_packed_all(const std::vector<Held>& all, const ChunkGrid& grid,
                                         const ChunkRange& range, bool completes) {
  std::vector<PackedRead> parts;
  for (const Held& held : all) {
    if (held.pieces.empty()) continue;
    auto read = read_packed(held.pieces.front(), grid, range);
    if (!read) return read.error();
    parts.push_back(*std::move(read));
  }
  if (parts.empty()) return Pieces{};
  const Reduction reduction{.dtype = completes ? descriptor_.dtype : partial_dtype_,
                            .op = completes ? descriptor_.op : ReduceOp::sum,
                            .world_size = world_size_};
  return Pieces{add_packed(parts, partial_dtype_, reduction, range, scratch_)};
}

Result<Pieces> PartAdder::add_by_chunk(std::vector<Held> all, const ChunkGrid& grid,
                                       const ChunkRange& range, bool completes) {
  if (Status error = unpack_all(all, grid, range)) return *std::move(error);
  std::map<std::uint64_t, std::vector<Contribution>> chunks;
  for (const Held& held : all) {
    for (const wire::Piece& piece : held.pieces) {
      auto read = read_segment(held.rank, {piece.format, piece.codec, piece.payload},
                               grid.layout(piece.chunk));
      if (!read) return read.error();
      chunks[piece.chunk].push_back(*std::move(read));
    }
  }
  Pieces sums;
  for (const auto& [chunk, contributions] : chunks) {
    sums.push_back(add_chunk(chunk, grid.layout(chunk), contributions, completes));
  }
  return sums;
}

wire::Piece PartAdder::add_chunk(std::uint64_t chunk, const BlockLayout& layout,
                                 const std::vector<Contribution>& contributions, bool completes) {
  Segment sum = reduce(contributions,
                       {.dtype = partial_dtype_,
                        .op = has_partial_sums_ ? ReduceOp::sum : descriptor_.op,
                        .world_size = world_size_,
                        .costs = costs_},
                       layout, scratch_);
  if (has_partial_sums_ && completes) sum = finished_sum(sum, layout);
  return {chunk, sum.format, sum.codec, std::move(sum.payload)};
}

// Divides for avg, and rounds to the vector's own type, once.
Segment PartAdder::finished_sum(const Segment& sum, const BlockLayout& layout) const {
  if (descriptor_.op == ReduceOp::sum && descriptor_.dtype == partial_dtype_) return sum;
  return converted(
      sum, layout, descriptor_.dtype, [&](std::byte* out, const std::byte* in, std::size_t count) {
        kernels().finish(out, in, count, descriptor_.dtype, descriptor_.op, world_size_);
      });
}

}  // namespace sparsewire::proto
