// Gaps become positions and numbers steps, and every bound is checked on the way.
#include "weights/changes.hpp"

#include "kernels/bit_fields.hpp"
#include "weights/numbers.hpp"
#include "weights/planes.hpp"

namespace sparsewire::weights {
namespace {

// Makes positions of gaps, in place. False where they lead out of `count` elements.
bool add_up(std::vector<std::uint32_t>& gaps, std::size_t count) {
  std::uint64_t next = 0;
  for (std::uint32_t& gap : gaps) {
    next += gap;
    gap = static_cast<std::uint32_t>(next);
    ++next;
  }
  return next <= count;
}

const std::byte* take_positions(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint32_t>& positions) {
  if (static_cast<std::size_t>(end - in) < kCountBytes) return nullptr;
  const std::size_t changed = load_32(in);
  if (changed == 0 || changed > count) return nullptr;
  in = decode_numbers(in + kCountBytes, end, changed, positions);
  return in && add_up(positions, count) ? in : nullptr;
}

template <typename T>
const std::byte* take_steps(const std::byte* in, const std::byte* end, std::size_t count,
                            std::vector<std::byte>& steps) {
  std::vector<NumberOf<T>> numbers;
  in = decode_numbers(in, end, count, numbers);
  if (!in) return nullptr;
  bool are_steps = true;
  steps.resize(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    are_steps &= is_number_of_step<T>(numbers[i]);
    store(steps.data(), i, step_of<T>(numbers[i]));
  }
  return are_steps ? in : nullptr;
}

// Where the code ends, or null.
const std::byte* take(Elements elements, const std::byte* in, const std::byte* end,
                      std::size_t count, Changes& found) {
  const std::size_t width = elements.width;
  if (found.form == Form::same) return in;
  if (found.form == Form::whole) return take_planes(in, end, width, count, found.payload);
  in = take_positions(in, end, count, found.positions);
  const std::size_t changed = found.positions.size();
  if (!in || found.form == Form::values) {
    return in ? take_planes(in, end, width, changed, found.payload) : nullptr;
  }
  return for_width(width,
                   [&]<typename T>(T) { return take_steps<T>(in, end, changed, found.payload); });
}

}  // namespace

std::optional<Changes> read_changes(Elements elements, std::span<const std::byte> code,
                                    std::size_t count) {
  if (code.empty() || static_cast<std::uint8_t>(code[0]) >= kFormCount) return {};
  Changes found{.form = static_cast<Form>(code[0])};
  const std::byte* const end = code.data() + code.size();
  if (take(elements, code.data() + 1, end, count, found) != end) return {};
  return found;
}

}  // namespace sparsewire::weights
