// Selects, quantises and packs one bucket at a time, while it is in the nearest cache.
#include "kernels/topk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/codec.hpp"

namespace sparsewire {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kInfinity = 0x7f800000u;
constexpr unsigned kExponentShift = 23;
constexpr unsigned kWholeValue = 32;
constexpr std::size_t kLanes = 16;

// The magnitude as a bit pattern: these are ordered like the numbers, and NaN comes last.
std::int32_t magnitude(float value) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & kMagnitude);
}

// Writes fields of up to 32 bits, one behind another.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  void put(std::uint32_t value, unsigned bits) {
    pending_ |= std::uint64_t{value} << filled_;
    for (filled_ += bits; filled_ >= 8; filled_ -= 8, pending_ >>= 8) {
      *out_++ = static_cast<std::byte>(pending_);
    }
  }

  void finish() {
    if (filled_ != 0) *out_ = static_cast<std::byte>(pending_);
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* in) : in_(in) {}

  std::uint32_t get(unsigned bits) {
    for (; filled_ < bits; filled_ += 8) {
      pending_ |= static_cast<std::uint64_t>(*in_++) << filled_;
    }
    const auto value = static_cast<std::uint32_t>(pending_ & ((std::uint64_t{1} << bits) - 1));
    pending_ >>= bits;
    filled_ -= bits;
    return value;
  }

 private:
  const std::byte* in_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

unsigned position_bits(std::size_t bucket) {
  return static_cast<unsigned>(std::bit_width(bucket - 1));
}

// A magnitude that at least k elements reach, unless they are zero: the k-th largest among the
// maxima of disjoint lanes. It leaves few candidates, for the price of one vectorised pass.
std::int32_t threshold(const float* values, std::size_t length, std::size_t k) {
  std::int32_t largest[kLanes] = {};
  if (k > kLanes) return 1;
  for (std::size_t first = 0; first + kLanes <= length; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::int32_t each = magnitude(values[first + lane]);
      largest[lane] = each > largest[lane] ? each : largest[lane];
    }
  }
  std::nth_element(largest, largest + (k - 1), largest + kLanes, std::greater<>());
  return std::max(largest[k - 1], 1);
}

bool any_reaches(const float* values, std::int32_t bound) {
  std::int32_t reached = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    reached |= magnitude(values[lane]) >= bound ? 1 : 0;
  }
  return reached != 0;
}

// Magnitude above, position below, so that of equal ones the first is the largest.
std::uint64_t candidate(float value, std::size_t position) {
  return (static_cast<std::uint64_t>(magnitude(value)) << 32) | (TopK::kMaxBucket - 1 - position);
}

std::size_t position_of(std::uint64_t candidate) {
  return TopK::kMaxBucket - 1 - static_cast<std::uint32_t>(candidate);
}

// Fills `found` with the k elements of largest magnitude that are not zero, or fewer.
void select(const float* values, std::size_t length, std::size_t k,
            std::vector<std::uint64_t>& found) {
  found.clear();
  const std::int32_t bound = threshold(values, length, k);
  const auto look_at = [&](std::size_t position) {
    if (magnitude(values[position]) >= bound) {
      found.push_back(candidate(values[position], position));
    }
  };
  std::size_t first = 0;
  for (; first + kLanes <= length; first += kLanes) {
    if (!any_reaches(values + first, bound)) continue;
    for (std::size_t lane = 0; lane < kLanes; ++lane) look_at(first + lane);
  }
  for (; first < length; ++first) look_at(first);
  if (found.size() > k) {
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(k), found.end(),
                     std::greater<>());
    found.resize(k);
  }
}

// The smallest normal power of two whose levels, rounded to nearest, hold `largest`: as the
// exponent field of a float32. That of NaN where `largest` is not finite.
std::uint32_t step_exponent(float largest, unsigned bits) {
  if (!std::isfinite(largest)) return kInfinity >> kExponentShift;
  int exponent = 0;
  const float fraction = std::frexp(largest, &exponent);
  const auto width = static_cast<int>(bits);
  const bool rounds_up = fraction >= 1.0f - std::ldexp(1.0f, -width);
  const int chosen = exponent - (width - 1) + (rounds_up ? 1 : 0);
  return static_cast<std::uint32_t>(std::clamp(chosen, -126, 127) + 127);
}

float step_of(std::uint32_t exponent) {
  const bool finite = exponent < (kInfinity >> kExponentShift);
  return finite ? std::bit_cast<float>(exponent << kExponentShift)
                : std::numeric_limits<float>::quiet_NaN();
}

// The level nearest to `value`, of those whose product with the step is finite.
std::int32_t level_of(float value, float step, std::int32_t largest) {
  if (std::isnan(step)) return 1;
  const auto nearest = static_cast<std::int32_t>(std::lrint(std::fabs(value) / step));
  std::int32_t level = std::min(nearest, largest);
  if (std::isinf(static_cast<float>(level) * step)) --level;
  return std::signbit(value) ? -level : level;
}

float signed_level(std::uint32_t code, unsigned bits) {
  const auto at_top = static_cast<std::int32_t>(code << (32 - bits));
  return static_cast<float>(at_top >> (32 - bits));
}

// Writes the found elements as they are, and leaves nothing of them.
void write_values(const std::vector<std::uint64_t>& found, std::size_t k, float* residual,
                  BitWriter& out) {
  for (std::size_t i = 0; i < k; ++i) {
    float* const value = i < found.size() ? residual + position_of(found[i]) : nullptr;
    out.put(value ? std::bit_cast<std::uint32_t>(*value) : 0, kWholeValue);
    if (value) *value = 0;
  }
}

// Writes the found elements as levels, and leaves what the levels do not stand for.
void write_levels(const std::vector<std::uint64_t>& found, std::size_t k, unsigned bits, float step,
                  float* residual, BitWriter& out) {
  const std::uint32_t mask = (std::uint32_t{1} << bits) - 1;
  for (std::size_t i = 0; i < k; ++i) {
    std::int32_t level = 0;
    if (i < found.size()) {
      float& value = residual[position_of(found[i])];
      level = level_of(value, step, largest_level(bits));
      value = std::isnan(step) ? 0 : value - static_cast<float>(level) * step;
    }
    out.put(static_cast<std::uint32_t>(level) & mask, bits);
  }
}

void write_record(const TopK& format, const std::vector<std::uint64_t>& found, float* residual,
                  std::byte* record) {
  BitWriter out(record);
  std::uint32_t exponent = 0;
  if (format.bits != kWholeValue) {
    if (!found.empty()) {
      const std::uint64_t largest = *std::max_element(found.begin(), found.end());
      exponent = step_exponent(std::bit_cast<float>(static_cast<std::uint32_t>(largest >> 32)),
                               format.bits);
    }
    out.put(exponent, 8);
  }
  const unsigned width = position_bits(format.bucket);
  for (std::size_t i = 0; i < format.k; ++i) {
    out.put(i < found.size() ? static_cast<std::uint32_t>(position_of(found[i])) : 0, width);
  }
  if (format.bits == kWholeValue) {
    write_values(found, format.k, residual, out);
  } else {
    write_levels(found, format.k, format.bits, step_of(exponent), residual, out);
  }
  out.finish();
}

// Adds what a record says to its bucket of `length` elements.
void add_record(const TopK& format, const std::byte* record, std::size_t length, float* out) {
  const bool whole = format.bits == kWholeValue;
  BitReader positions(record);
  const float step = whole ? 1.0f : step_of(positions.get(8));
  const unsigned width = position_bits(format.bucket);
  BitReader values = positions;
  for (std::size_t i = 0; i < format.k; ++i) values.get(width);
  for (std::size_t i = 0; i < format.k; ++i) {
    const std::size_t position = positions.get(width);
    const std::uint32_t code = values.get(format.bits);
    const float value = whole ? std::bit_cast<float>(code) : signed_level(code, format.bits) * step;
    // Whatever a peer sent, memory beyond the bucket is safe.
    if (position < length) out[position] += value;
  }
}

}  // namespace

std::size_t TopK::record_bytes() const {
  const std::size_t step_bits = bits == kWholeValue ? 0 : 8;
  return ceil_div(step_bits + k * (position_bits(bucket) + bits), std::size_t{8});
}

std::size_t TopK::bytes(std::size_t count) const {
  return ceil_div(count, bucket) * record_bytes();
}

void TopK::compress(const float* gradient, float* residual, std::size_t count,
                    std::byte* records) const {
  std::vector<std::uint64_t> found;
  for (std::size_t first = 0; first < count; first += bucket, records += record_bytes()) {
    const std::size_t length = std::min(bucket, count - first);
    for (std::size_t i = first; i < first + length; ++i) residual[i] += gradient[i];
    select(residual + first, length, k, found);
    write_record(*this, found, residual + first, records);
  }
}

void TopK::mean(const std::byte* records, std::size_t stride, std::size_t ranks, std::size_t count,
                float* out) const {
  const auto divisor = static_cast<float>(ranks);
  for (std::size_t first = 0; first < count; first += bucket, records += record_bytes()) {
    const std::size_t length = std::min(bucket, count - first);
    std::fill_n(out + first, length, 0.0f);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      add_record(*this, records + rank * stride, length, out + first);
    }
    for (std::size_t i = first; i < first + length; ++i) out[i] /= divisor;
  }
}

}  // namespace sparsewire
