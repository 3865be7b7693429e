// Walks down columns, and converts between a tensor's blocks and those of datagrams.
#include "proto/slots/columns.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/kernels.hpp"

namespace sparsewire::proto {

Columns::Columns(const SlotPool& pool, const SlotTensor& tensor)
    : tensor_(tensor),
      layout_(slot_layout(pool, tensor)),
      fixed_point_(pool.ranks()),
      ranks_(static_cast<std::int32_t>(pool.ranks())),
      scans_(tensor.scans && skips_zeros(tensor.op)),
      has_exponents_(tensor.arithmetic == Arithmetic::fixed && is_floating(tensor.dtype)) {}

std::uint64_t Columns::offset(std::uint32_t block) const {
  return (std::uint64_t{block} * tensor_.owners + tensor_.owner) * layout_.block;
}

std::size_t Columns::length(std::uint32_t block) const {
  return std::min<std::uint64_t>(layout_.block, tensor_.count - offset(block));
}

bool Columns::is_zero(std::uint32_t block) const {
  const std::size_t size = element_size(tensor_.dtype);
  const std::size_t at = offset(block) * size;
  const std::size_t count = length(block);
  std::uint64_t mark;
  const ScanResult scan =
      kernels().scan(tensor_.source + at, count, tensor_.dtype, layout_.block, &mark);
  if (scan.nonzero != 0) return false;
  if (scan.negative_zeros || tensor_.source != tensor_.out) {
    std::memset(tensor_.out + at, 0, count * size);
  }
  return true;
}

wire::ColumnRecord Columns::find(std::uint32_t block) const {
  if (scans_) {
    while (block != wire::kNoBlock && is_zero(block)) block = layout_.below(block);
  }
  if (block == wire::kNoBlock || !has_exponents_) return {.next = block};
  const std::byte* const values = tensor_.source + offset(block) * element_size(tensor_.dtype);
  return {.next = block, .exponent = shared_exponent(values, length(block), tensor_.dtype)};
}

void Columns::read(std::uint32_t block, std::uint8_t exponent, std::byte* values) const {
  const std::size_t size = element_size(tensor_.dtype);
  const std::size_t count = length(block);
  const std::byte* const from = tensor_.source + offset(block) * size;
  if (has_exponents_) {
    fixed_point_.encode(values, from, count, tensor_.dtype, exponent);
  } else {
    std::memcpy(values, from, count * size);
  }
  const std::size_t written = count * element_size(layout_.wire);
  std::memset(values + written, 0, layout_.block_bytes() - written);
}

void Columns::write(std::uint32_t block, std::uint8_t exponent, const std::byte* values) const {
  const std::size_t size = element_size(tensor_.dtype);
  const std::size_t count = length(block);
  std::byte* const to = tensor_.out + offset(block) * size;
  if (has_exponents_) {
    fixed_point_.decode(to, values, count, tensor_.dtype, tensor_.op, exponent);
  } else if (tensor_.op != layout_.wire_op) {  // The aggregator has only added.
    kernels().finish(to, values, count, tensor_.dtype, tensor_.op, ranks_);
  } else {
    std::memcpy(to, values, count * size);
  }
}

}  // namespace sparsewire::proto
