// Gaps become positions, and every bound is checked on the way.
#include "weights/changes.hpp"

#include <algorithm>

#include "kernels/bit_fields.hpp"
#include "weights/numbers.hpp"
#include "weights/planes.hpp"

namespace sparsewire::weights {
namespace {

bool take_positions(const std::byte*& in, const std::byte* end, std::size_t count,
                    std::vector<std::uint32_t>& positions) {
  if (static_cast<std::size_t>(end - in) < kCountBytes) return false;
  const std::size_t changed = load_32(in);
  if (changed == 0 || changed > count) return false;
  std::vector<std::uint64_t> gaps;
  in = decode_numbers(in + kCountBytes, end, changed, gaps);
  if (!in) return false;
  positions.resize(changed);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < changed; ++i) {
    if (gaps[i] >= count - next) return false;
    positions[i] = static_cast<std::uint32_t>(next + gaps[i]);
    next = positions[i] + std::uint64_t{1};
    if (next == count && i + 1 != changed) return false;
  }
  return true;
}

bool are_steps(const std::vector<std::uint64_t>& steps, std::size_t width) {
  // The magnitude of the least step is one more than that of the largest.
  const std::uint64_t most = (std::uint64_t{1} << (8 * width - 1));
  return std::ranges::all_of(steps, [&](std::uint64_t step) { return (step >> 1) < most; });
}

bool read(Elements elements, std::span<const std::byte> code, std::size_t count, Changes& found) {
  const std::byte* in = code.data() + 1;
  const std::byte* const end = code.data() + code.size();
  switch (found.form) {
    case Form::same:
      break;
    case Form::steps:
      if (!take_positions(in, end, count, found.positions)) return false;
      in = decode_numbers(in, end, found.positions.size(), found.steps);
      if (!in || !are_steps(found.steps, elements.width)) return false;
      break;
    case Form::values:
      if (!take_positions(in, end, count, found.positions)) return false;
      in = take_planes(in, end, elements.width, found.positions.size(), found.values);
      break;
    case Form::whole:
      in = take_planes(in, end, elements.width, count, found.values);
      break;
  }
  return in == end;
}

}  // namespace

std::optional<Changes> read_changes(Elements elements, std::span<const std::byte> code,
                                    std::size_t count) {
  if (code.empty() || static_cast<std::uint8_t>(code[0]) >= kFormCount) return {};
  Changes found{.form = static_cast<Form>(code[0])};
  if (!read(elements, code, count, found)) return {};
  return found;
}

}  // namespace sparsewire::weights
