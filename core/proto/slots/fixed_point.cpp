// Converts values, by plain loops for the vectoriser. They compute in float64, which loses nothing
// before the one rounding.
#include "proto/slots/fixed_point.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/kernels.hpp"
#include "kernels/loops/elements.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {
namespace {

constexpr int kBias = 127;

// Added to a double below 2^51, it makes that an integer in the low bits, rounded to nearest even.
constexpr double kRounder = 0x1.8p52;

constexpr std::size_t kTile = 512;

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Passes the values on as float32: all at once, or converted tile by tile. Calls visit(floats,
// first, length).
template <typename Visit>
void for_each_widened(const std::byte* values, std::size_t count, DType dtype, Visit&& visit) {
  if (dtype == DType::float32) return visit(values, std::size_t{0}, count);
  std::array<float, kTile> tile;
  auto* const floats = reinterpret_cast<std::byte*>(tile.data());
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t length = std::min(kTile, count - first);
    kernels().start(floats, values + first * element_size(dtype), length, dtype, ReduceOp::sum);
    visit(floats, first, length);
  }
}

constexpr std::int32_t kLargestBits = 0x7fff'ffff;
constexpr std::int32_t kLargestFinite = 0x7f7f'ffff;

// The largest magnitude up to the limit, as bits.
template <std::int32_t kLimit>
std::uint32_t largest_magnitude(const std::byte* floats, std::size_t count) {
  const auto* const bits = reinterpret_cast<const Unaligned<std::int32_t>*>(floats);
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = bits[i].value & kLargestBits;
    largest = magnitude > largest && magnitude <= kLimit ? magnitude : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

template <std::int32_t kLimit>
std::uint8_t exponent_up_to(const std::byte* values, std::size_t count, DType dtype) {
  std::uint32_t largest = 0;
  for_each_widened(values, count, dtype,
                   [&](const std::byte* floats, std::size_t, std::size_t length) {
                     largest = std::max(largest, largest_magnitude<kLimit>(floats, length));
                   });
  return std::max(static_cast<std::uint8_t>(largest >> 23), wire::kLeastExponent);
}

void scale_up(std::byte* __restrict integers, const std::byte* __restrict floats, std::size_t count,
              double scale) {
  auto* const to = reinterpret_cast<Unaligned<std::int32_t>*>(integers);
  const auto* const from = reinterpret_cast<const Unaligned<float>*>(floats);
  for (std::size_t i = 0; i < count; ++i) {
    const double rounded = static_cast<double>(from[i].value) * scale + kRounder;
    to[i].value = static_cast<std::int32_t>(std::bit_cast<std::int64_t>(rounded));
  }
}

// A float32 that rounds to a shorter format as the double would: a double between two floats
// becomes the one whose last bit is set.
float rounded_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const bool is_beyond = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest) - std::uint32_t{is_beyond};
  return std::bit_cast<float>(bits | std::uint32_t{back != value});
}

template <typename Convert>
void scale_down(std::byte* __restrict floats, const std::byte* __restrict sums, std::size_t count,
                Convert convert) {
  auto* const to = reinterpret_cast<Unaligned<float>*>(floats);
  const auto* const from = reinterpret_cast<const Unaligned<std::int32_t>*>(sums);
  for (std::size_t i = 0; i < count; ++i) {
    to[i].value = convert(static_cast<double>(from[i].value));
  }
}

// Multiplication by a power of two is exact; so is division by 1.
void scale_down(std::byte* floats, const std::byte* sums, std::size_t count, double unit,
                double divisor, bool is_final) {
  if (!is_final) {
    return scale_down(floats, sums, count,
                      [=](double sum) { return rounded_to_odd(sum * unit / divisor); });
  }
  if (divisor != 1) {
    return scale_down(floats, sums, count,
                      [=](double sum) { return static_cast<float>(sum * unit / divisor); });
  }
  scale_down(floats, sums, count, [=](double sum) { return static_cast<float>(sum * unit); });
}

}  // namespace

std::uint8_t shared_exponent(const std::byte* values, std::size_t count, DType dtype) {
  return exponent_up_to<kLargestBits>(values, count, dtype);
}

std::uint8_t finite_exponent(const std::byte* values, std::size_t count, DType dtype) {
  return exponent_up_to<kLargestFinite>(values, count, dtype);
}

FixedPoint::FixedPoint(std::uint32_t workers)
    : workers_(workers), bits_(std::bit_width(INT32_MAX / workers) - 1) {}

void FixedPoint::encode(std::byte* integers, const std::byte* values, std::size_t count,
                        DType dtype, std::uint8_t exponent) const {
  const double scale = power_of_two(bits_ - (exponent - kBias + 1));
  for_each_widened(values, count, dtype,
                   [&](const std::byte* floats, std::size_t first, std::size_t length) {
                     scale_up(integers + first * sizeof(std::int32_t), floats, length, scale);
                   });
}

void FixedPoint::decode(std::byte* values, const std::byte* sums, std::size_t count, DType dtype,
                        ReduceOp op, std::uint8_t exponent) const {
  const double unit = power_of_two(exponent - kBias + 1 - bits_);
  const double divisor = op == ReduceOp::avg ? workers_ : 1;
  if (dtype == DType::float32) return scale_down(values, sums, count, unit, divisor, true);
  std::array<float, kTile> tile;
  auto* const floats = reinterpret_cast<std::byte*>(tile.data());
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t length = std::min(kTile, count - first);
    scale_down(floats, sums + first * sizeof(std::int32_t), length, unit, divisor, false);
    kernels().finish(values + first * element_size(dtype), floats, length, dtype, ReduceOp::sum, 1);
  }
}

}  // namespace sparsewire::proto
