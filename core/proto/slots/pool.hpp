// The pool of slots of a job at one aggregator, and how a tensor's blocks fall to them: pure
// functions of values that all ranks agree on, so no rank ever has to ask.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/types.hpp"
#include "wire/datagram.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {

// Time since some fixed moment.
using Microseconds = std::chrono::microseconds;

struct SlotPool {
  std::uint16_t slots = 128;
  std::uint16_t workers = 1;          // at this aggregator: ranks, or racks of them
  std::size_t datagram_bytes = 1472;  // of the largest one: what UDP carries on the path
  std::uint32_t block = 256;          // of the topology, in elements
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  std::uint32_t world_size = 0;  // ranks of the job; 0: there are no racks, each worker is a rank

  constexpr std::uint32_t ranks() const { return world_size != 0 ? world_size : workers; }
};

// Datagrams that a worker sends before it has heard anything: no more than TCP (RFC 6928). The
// first datagrams of all workers, if these are at most 128, fit into a receive buffer of 208 KiB
// (twice that as Linux counts).
constexpr std::size_t first_window(const SlotPool& pool) {
  constexpr std::size_t kOfAll = 128, kOfOne = 10, kOrdinaryBytes = 1472;
  const std::size_t of_all =
      kOfAll * kOrdinaryBytes / std::max(kOrdinaryBytes, pool.datagram_bytes);
  return std::clamp(of_all / pool.workers, std::size_t{1}, kOfOne);
}

enum class Arithmetic : std::uint8_t {
  exact,  // in the tensor's dtype, in rank order: the bits of the stream
  fixed,  // integers of 32 bits, with an exponent for each block
};

// Whether slots can carry such a tensor in fixed point.
constexpr bool has_fixed_point(DType dtype, ReduceOp op) {
  return skips_zeros(op) && dtype != DType::float64 && dtype != DType::int64;
}

// One operation; the memory stays valid until it has ended. `out` may be `source`.
struct SlotTensor {
  const std::byte* source = nullptr;
  std::byte* out = nullptr;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;  // elements
  bool scans = true;        // leaves out blocks of zeros, if the operation skips zeros
  Arithmetic arithmetic = Arithmetic::exact;
  std::uint32_t owners = 1;  // aggregators among which blocks are dealt out in turn
  std::uint32_t owner = 0;   // which of them this is
};

// How one tensor goes through the slots of a pool. Block b of the tensor is block b / owners of
// owner b mod owners. From here on blocks are numbered as the owner has them. Block i is in column
// i mod stride, and a slot walks down its columns, all at once.
struct SlotLayout {
  DType wire = DType::float32;       // dtype of the values in datagrams
  ReduceOp wire_op = ReduceOp::sum;  // what the aggregator does with them
  std::uint16_t block = 256;         // elements
  std::uint8_t columns = 1;          // of one slot
  std::uint32_t blocks = 0;          // of this owner
  std::uint32_t stride = 1;          // columns of all slots

  constexpr std::size_t block_bytes() const { return block * element_size(wire); }

  // A slot without a block does not take part in the operation.
  constexpr bool has_slot(std::uint32_t slot) const { return slot * columns < blocks; }
  constexpr std::uint32_t slots() const {
    return std::min(ceil_div(blocks, std::uint32_t{columns}), stride / columns);
  }

  constexpr std::uint32_t column(std::uint32_t slot, std::uint32_t in_datagram) const {
    return slot * columns + in_datagram;
  }
  constexpr std::uint32_t first(std::uint32_t column) const {
    return column < blocks ? column : wire::kNoBlock;
  }
  // The block below, in the same column.
  constexpr std::uint32_t below(std::uint32_t at) const {
    return at < blocks && blocks - at > stride ? at + stride : wire::kNoBlock;
  }
};

// The topology's block, halved until it fits into a datagram, but no less than 16.
constexpr std::uint16_t datagram_block(const SlotPool& pool, DType wire) {
  const std::size_t room = pool.datagram_bytes - wire::datagram_head(1);
  std::size_t block = pool.block;
  while (block > wire::kMinBlock && block * element_size(wire) > room) block /= 2;
  return static_cast<std::uint16_t>(block);
}

constexpr std::uint8_t datagram_columns(const SlotPool& pool, std::size_t block_bytes) {
  const std::size_t fitting =
      (pool.datagram_bytes - wire::kDatagramHeaderBytes) / (wire::kColumnBytes + block_bytes);
  return static_cast<std::uint8_t>(std::clamp(fitting, std::size_t{1}, wire::kMaxColumns));
}

// In fixed point, values travel as int32, and the aggregator only adds.
constexpr SlotLayout slot_layout(const SlotPool& pool, const SlotTensor& tensor) {
  const bool is_fixed = tensor.arithmetic == Arithmetic::fixed;
  SlotLayout layout;
  layout.wire = is_fixed ? DType::int32 : tensor.dtype;
  layout.wire_op = is_fixed ? ReduceOp::sum : tensor.op;
  layout.block = datagram_block(pool, layout.wire);
  layout.columns = datagram_columns(pool, layout.block_bytes());
  layout.stride = std::uint32_t{pool.slots} * layout.columns;
  const std::uint64_t all = ceil_div(tensor.count, std::uint64_t{layout.block});
  const std::uint64_t owned = (all + tensor.owners - 1 - tensor.owner) / tensor.owners;
  layout.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(owned, wire::kNoBlock));
  return layout;
}

// Whether the numbers of blocks fit into their field, and a block into a datagram.
constexpr bool fits_slots(const SlotPool& pool, const SlotTensor& tensor) {
  const SlotLayout layout = slot_layout(pool, tensor);
  return layout.blocks < wire::kNoBlock &&
         wire::datagram_head(1) + layout.block_bytes() <= pool.datagram_bytes;
}

}  // namespace sparsewire::proto
