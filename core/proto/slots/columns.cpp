// Walks down columns, and converts between a tensor's blocks and those of datagrams.
#include "proto/slots/columns.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/kernels.hpp"
#include "proto/slots/marks.hpp"

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

const std::byte* Columns::source(std::uint32_t block) const {
  return tensor_.source + offset(block) * element_size(tensor_.dtype);
}

std::byte* Columns::out(std::uint32_t block) const {
  return tensor_.out + offset(block) * element_size(tensor_.dtype);
}

bool Columns::is_zero(std::uint32_t block) const {
  const std::size_t count = length(block);
  std::uint64_t mark;
  const ScanResult scan = kernels().scan(source(block), count, tensor_.dtype, layout_.block, &mark);
  if (scan.nonzero != 0) return false;
  if (scan.negative_zeros || tensor_.source != tensor_.out) {
    std::memset(out(block), 0, count * element_size(tensor_.dtype));
  }
  return true;
}

wire::ColumnRecord Columns::find(std::uint32_t block) const {
  if (scans_) {
    while (block != wire::kNoBlock && is_zero(block)) block = layout_.below(block);
  }
  if (block == wire::kNoBlock || !has_exponents_) return {.next = block};
  return {.next = block, .exponent = shared_exponent(source(block), length(block), tensor_.dtype)};
}

wire::ColumnRecord Columns::after(const wire::ColumnRecord& asked) const {
  const std::uint32_t block = asked.next;
  if (!has_marks(asked)) return find(layout_.below(block));
  return {.next = block, .exponent = finite_exponent(source(block), length(block), tensor_.dtype)};
}

void Columns::read(const wire::ColumnRecord& asked, std::byte* values) const {
  const std::byte* const from = source(asked.next);
  const std::size_t count = length(asked.next);
  if (has_marks(asked)) {
    encode_marks(values, from, count, tensor_.dtype);
  } else if (has_exponents_) {
    fixed_point_.encode(values, from, count, tensor_.dtype, asked.exponent);
  } else {
    std::memcpy(values, from, count * element_size(tensor_.dtype));
  }
  const std::size_t written = count * element_size(layout_.wire);
  std::memset(values + written, 0, layout_.block_bytes() - written);
}

void Columns::write(const wire::ColumnRecord& asked, const std::byte* values,
                    bool is_marked) const {
  std::byte* const to = out(asked.next);
  const std::size_t count = length(asked.next);
  if (has_marks(asked)) {
    write_marks(asked.next, values);
  } else if (has_exponents_) {
    write_fixed(asked, values, is_marked);
  } else if (tensor_.op != layout_.wire_op) {  // The aggregator has only added.
    kernels().finish(to, values, count, tensor_.dtype, tensor_.op, ranks_);
  } else {
    std::memcpy(to, values, count * element_size(tensor_.dtype));
  }
}

// Leaves this rank's values between the marks. These are finite, because all others are marked.
void Columns::write_marks(std::uint32_t block, const std::byte* sums) const {
  const std::size_t count = length(block);
  std::memmove(out(block), source(block), count * element_size(tensor_.dtype));
  place_marks(out(block), sums, count, tensor_.dtype);
}

void Columns::write_fixed(const wire::ColumnRecord& asked, const std::byte* sums,
                          bool is_marked) const {
  std::byte* const to = out(asked.next);
  const std::size_t count = length(asked.next);
  const auto decode = [&](std::byte* values) {
    fixed_point_.decode(values, sums, count, tensor_.dtype, tensor_.op, asked.exponent);
  };
  if (!is_marked) return decode(to);
  std::vector<std::byte> values(count * element_size(tensor_.dtype));
  decode(values.data());
  copy_between_marks(to, values.data(), count, tensor_.dtype);
}

}  // namespace sparsewire::proto
