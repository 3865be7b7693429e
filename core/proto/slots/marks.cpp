// Two counts share an integer: how many ranks have an infinity of either sign. NaN counts in both,
// because the sum of both infinities is NaN.
#include "proto/slots/marks.hpp"

#include <cstdint>

#include "kernels/loops/elements.hpp"
#include "wire/greeting.hpp"

namespace sparsewire::proto {
namespace {

constexpr std::uint32_t kPositive = 1;
constexpr std::uint32_t kNegative = 1u << 16;
static_assert(wire::kMostRanks < kNegative, "or the counts run into each other");

using Mark = Unaligned<std::uint32_t>;

// The bits of values of one dtype.
template <typename Bits>
struct Format {
  Bits infinity;

  static constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);

  bool is_finite(Bits bits) const { return (bits & infinity) != infinity; }

  std::uint32_t mark_of(Bits bits) const {
    if (is_finite(bits)) return 0;
    if (bits == infinity) return kPositive;
    return bits == (infinity | kSign) ? kNegative : kPositive | kNegative;
  }

  Bits sum_of(std::uint32_t marks) const {
    const bool has_positive = marks % kNegative != 0;
    const bool has_negative = marks / kNegative != 0;
    if (has_positive && has_negative) return infinity | infinity >> 1;  // a quiet NaN
    return has_negative ? infinity | kSign : infinity;
  }
};

// Calls visit(format).
template <typename Visit>
void with_format(DType dtype, Visit&& visit) {
  if (dtype == DType::float32) return visit(Format<std::uint32_t>{0x7f80'0000});
  const bool is_half = dtype == DType::float16;
  visit(Format<std::uint16_t>{static_cast<std::uint16_t>(is_half ? 0x7c00 : 0x7f80)});
}

}  // namespace

void encode_marks(std::byte* marks, const std::byte* values, std::size_t count, DType dtype) {
  auto* const to = reinterpret_cast<Mark*>(marks);
  with_format(dtype, [&]<typename Bits>(Format<Bits> format) {
    const auto* const from = reinterpret_cast<const Unaligned<Bits>*>(values);
    for (std::size_t i = 0; i < count; ++i) to[i].value = format.mark_of(from[i].value);
  });
}

void place_marks(std::byte* values, const std::byte* sums, std::size_t count, DType dtype) {
  const auto* const from = reinterpret_cast<const Mark*>(sums);
  with_format(dtype, [&]<typename Bits>(Format<Bits> format) {
    auto* const to = reinterpret_cast<Unaligned<Bits>*>(values);
    for (std::size_t i = 0; i < count; ++i) {
      if (from[i].value != 0) to[i].value = format.sum_of(from[i].value);
    }
  });
}

void copy_between_marks(std::byte* to, const std::byte* from, std::size_t count, DType dtype) {
  with_format(dtype, [&]<typename Bits>(Format<Bits> format) {
    auto* const places = reinterpret_cast<Unaligned<Bits>*>(to);
    const auto* const values = reinterpret_cast<const Unaligned<Bits>*>(from);
    for (std::size_t i = 0; i < count; ++i) {
      if (format.is_finite(places[i].value)) places[i].value = values[i].value;
    }
  });
}

}  // namespace sparsewire::proto
