// Lays out lists and parts.
#include "proto/exchange/part_plan.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/kernels.hpp"

namespace sparsewire::proto {
namespace {

using wire::Algorithm;
using wire::Collective;

// A part covers a million elements, which pipelines large vectors. Huge vectors have no more than
// kMaxParts parts. More than one part is worth it only if a rank names kPartElements elements for
// each.
constexpr std::uint64_t kPartChunks = 16;
constexpr std::uint64_t kMaxParts = 64;
constexpr std::uint64_t kPartElements = 8192;

// If no rank names so many elements, a second lane would cost more than it gains.
constexpr std::uint64_t kLaneElements = 32'768;

// Rows of `unit` positions lie in one chunk each, if so many blocks fit into a chunk.
ChunkGrid contiguous_grid(const wire::Descriptor& descriptor, std::uint64_t count,
                          std::uint64_t unit) {
  const std::uint64_t block = descriptor.row == 1 ? 256 : descriptor.row;
  const std::uint64_t whole = block * unit <= wire::kMaxChunkElements ? block * unit : block;
  return {.count = count,
          .chunk_elements = wire::kMaxChunkElements / whole * whole,
          .element_size = element_size(descriptor.dtype),
          .block = static_cast<std::size_t>(block)};
}

}  // namespace

PartPlan::PartPlan(const wire::Call& call, wire::Algorithm algorithm, Rank rank, Rank world_size,
                   std::uint64_t seq, std::uint64_t most_elements, const Hosts& hosts)
    : call_(call),
      algorithm_(algorithm),
      rank_(rank),
      world_size_(world_size),
      seq_(seq),
      most_elements_(most_elements),
      hosts_(hosts) {
  const bool has_lists =
      call.collective == Collective::all_gather || call.collective == Collective::reduce_scatter;
  lists_ = has_lists ? static_cast<std::uint64_t>(world_size) : 1;
  std::uint64_t chunks = 0;
  for (std::uint64_t list = 0; list < lists_; ++list) {
    chunks = std::max(chunks, grid(list).chunks());
  }
  const bool has_keepers =
      algorithm == Algorithm::ring || algorithm == Algorithm::ssar_split_allgather;
  const std::uint64_t worth = std::max(most_elements / lists_ / kPartElements, std::uint64_t{1});
  chunks_per_part_ = std::max(kPartChunks, ceil_div(chunks, std::min(kMaxParts, worth)));
  // Every rank gets something to keep, if there is enough.
  const std::uint64_t share = ceil_div(chunks, static_cast<std::uint64_t>(world_size));
  if (has_keepers) chunks_per_part_ = std::min(chunks_per_part_, share);
  parts_per_list_ = ceil_div(chunks, chunks_per_part_);
  has_partial_sums_ =
      adds_up_by_hosts() ||
      (call.collective == Collective::all_reduce &&
       (algorithm == Algorithm::ssar_recursive_double || algorithm == Algorithm::ring));
}

// Whether one rank of each host speaks for all ranks there.
bool PartPlan::adds_up_by_hosts() const {
  if (hosts_.is_flat()) return false;
  const bool is_split_sum =
      call_.collective == Collective::all_reduce && algorithm_ == Algorithm::ssar_split_allgather;
  return is_split_sum || call_.collective == Collective::reduce ||
         call_.collective == Collective::reduce_scatter;
}

std::uint64_t PartPlan::lists() const {
  return call_.collective == Collective::all_gather ? lists_ : 1;
}

std::uint64_t PartPlan::begin(std::uint64_t list) const {
  if (call_.collective != Collective::reduce_scatter) return 0;
  const std::uint64_t unit = std::uint64_t{call_.descriptor.row} * call_.unit;  // elements
  const std::uint64_t units = call_.descriptor.count / unit;
  // Split so that no product exceeds 64 bits: the bound is units * list / lists.
  return (units / lists_ * list + units % lists_ * list / lists_) * unit;
}

std::uint64_t PartPlan::end(std::uint64_t list) const {
  if (call_.collective != Collective::reduce_scatter) return call_.descriptor.count;
  return begin(list + 1);
}

ChunkGrid PartPlan::grid(std::uint64_t list) const {
  return contiguous_grid(call_.descriptor, end(list) - begin(list), call_.unit);
}

ChunkGrid PartPlan::grid_of(std::uint64_t part, bool is_complete) const {
  ChunkGrid grid = this->grid(list_of(part));
  if (!is_complete) grid.element_size = element_size(partial_dtype());
  return grid;
}

ChunkRange PartPlan::range_of(std::uint64_t part) const {
  const std::uint64_t first = part % parts_per_list_ * chunks_per_part_;
  const std::uint64_t chunks = grid(list_of(part)).chunks();
  return {first, std::min(first + chunks_per_part_, std::max(first, chunks))};
}

// Keepers take turns as lanes do, and both turns would fall together if their numbers have a common
// divisor. Shifted, every lane gets parts of every keeper.
std::uint32_t PartPlan::lane_of(std::uint64_t part, std::uint32_t lanes) const {
  if (most_elements_ < kLaneElements) return 0;
  const std::uint64_t rounds = part / std::lcm(static_cast<std::uint64_t>(world_size_), lanes);
  return static_cast<std::uint32_t>((part + rounds) % lanes);
}

bool PartPlan::is_shared_by(std::uint32_t lanes) const {
  return lanes > 1 && parts() > 1 && most_elements_ >= kLaneElements;
}

DType PartPlan::partial_dtype() const {
  const DType dtype = call_.descriptor.dtype;
  return has_partial_sums_ ? accumulator_of(dtype) : dtype;
}

Rank PartPlan::keeper(std::uint64_t part) const {
  const auto world_size = static_cast<std::uint64_t>(world_size_);
  if (lists_ != 1) return static_cast<Rank>(list_of(part));
  return static_cast<Rank>((part + seq_) % world_size);
}

Schedule PartPlan::schedule(std::uint64_t part) const {
  const auto root = static_cast<Rank>(call_.root);
  switch (call_.collective) {
    case Collective::reduce:
      return split_schedule(rank_, world_size_, hosts_, keeper(part), {root});
    case Collective::reduce_scatter:
      return split_schedule(rank_, world_size_, hosts_, keeper(part), {keeper(part)});
    case Collective::broadcast:
      return broadcast_schedule(rank_, world_size_, hosts_, root);
    case Collective::all_gather:
      return gather_schedule(rank_, world_size_, hosts_, keeper(part));
    case Collective::all_reduce:
    case Collective::barrier:  // No join may name it: it runs as a sum.
      break;
  }
  if (algorithm_ == Algorithm::ssar_split_allgather) {
    return split_schedule(rank_, world_size_, hosts_, keeper(part), all_ranks(world_size_));
  }
  if (algorithm_ == Algorithm::ring) return ring_schedule(rank_, world_size_, keeper(part));
  if (algorithm_ == Algorithm::ssar_recursive_double) {
    return recursive_double_schedule(rank_, world_size_);
  }
  return allgather_schedule(rank_, world_size_);
}

bool PartPlan::contributes(std::uint64_t part) const {
  if (call_.collective == Collective::broadcast) return rank_ == static_cast<Rank>(call_.root);
  return call_.collective != Collective::all_gather || keeper(part) == rank_;
}

bool PartPlan::receives(std::uint64_t part) const {
  if (call_.collective == Collective::reduce) return rank_ == static_cast<Rank>(call_.root);
  return call_.collective != Collective::reduce_scatter || keeper(part) == rank_;
}

}  // namespace sparsewire::proto
