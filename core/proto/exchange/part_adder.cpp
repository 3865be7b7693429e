// Decodes the ranks' values and reduces them.
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

// If some rank has too many elements for packing, all go chunk by chunk.
Status unpack_all(std::vector<Held>& all, const ChunkGrid& grid, const ChunkRange& range) {
  for (Held& held : all) {
    if (!is_packed(held)) continue;
    const auto read = read_packed(held.pieces.front(), grid, range);
    if (!read) return read.error();
    held.pieces = unpack_pieces(*read, range, grid.element_size);
  }
  return {};
}

}  // namespace

Result<Pieces> PartAdder::add(std::uint64_t part, std::vector<Held> all, bool completes) {
  const bool are_packed = std::ranges::all_of(
      all, [](const Held& held) { return held.pieces.empty() || is_packed(held); });
  return are_packed ? add_packed_all(part, all, completes)
                    : add_by_chunk(part, std::move(all), completes);
}

Result<Pieces> PartAdder::add_packed_all(std::uint64_t part, const std::vector<Held>& all,
                                         bool completes) {
  const ChunkGrid grid = plan_.grid_of(part, false);
  const ChunkRange range = plan_.range_of(part);
  std::vector<PackedRead> parts;
  for (const Held& held : all) {
    if (held.pieces.empty()) continue;
    auto read = read_packed(held.pieces.front(), grid, range);
    if (!read) return read.error();
    parts.push_back(*std::move(read));
  }
  if (parts.empty()) return Pieces{};
  const wire::Descriptor& descriptor = plan_.call().descriptor;
  const Reduction reduction{.dtype = completes ? descriptor.dtype : plan_.partial_dtype(),
                            .op = completes ? descriptor.op : ReduceOp::sum,
                            .world_size = plan_.world_size()};
  return Pieces{add_packed(parts, plan_.partial_dtype(), reduction, range, scratch_)};
}

Result<Pieces> PartAdder::add_by_chunk(std::uint64_t part, std::vector<Held> all, bool completes) {
  const ChunkGrid grid = plan_.grid_of(part, false);
  if (Status error = unpack_all(all, grid, plan_.range_of(part))) return *std::move(error);
  std::map<std::uint64_t, std::vector<Contribution>> chunks;
  for (const Held& held : all) {
    for (const wire::Piece& piece : held.pieces) {
      auto read = read_segment(held.rank, segment_of(piece), grid.layout(piece.chunk));
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

// A complete sum is divided for avg, and rounded to the vector's own type, once.
wire::Piece PartAdder::add_chunk(std::uint64_t chunk, const BlockLayout& layout,
                                 const std::vector<Contribution>& contributions, bool completes) {
  const DType dtype = plan_.call().descriptor.dtype;
  const ReduceOp op = plan_.call().descriptor.op;
  const DType partial = plan_.partial_dtype();
  Segment sum = reduce(contributions,
                       {.dtype = partial,
                        .op = plan_.has_partial_sums() ? ReduceOp::sum : op,
                        .world_size = plan_.world_size(),
                        .costs = costs_},
                       layout, scratch_);
  const bool is_final = op == ReduceOp::sum && dtype == partial;
  if (plan_.has_partial_sums() && completes && !is_final) {
    sum = converted(sum, layout, dtype, [&](std::byte* out, const std::byte* in, std::size_t n) {
      kernels().finish(out, in, n, dtype, op, plan_.world_size());
    });
  }
  return {chunk, sum.format, sum.codec, std::move(sum.payload)};
}

}  // namespace sparsewire::proto
