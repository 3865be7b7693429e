// Encoding and decoding values, and inputs for it: what the tests of codecs share.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "base/types.hpp"
#include "kernels/kernels.hpp"
#include "random.hpp"
#include "wire/codec.hpp"

namespace sparsewire::test {

using Floats = std::vector<float>;

inline constexpr Codec kCodecs[] = {Codec::raw,  Codec::bfloat16, Codec::float16,
                                    Codec::int8, Codec::int4,     Codec::int2};
inline constexpr Codec kQuantised[] = {Codec::int8, Codec::int4, Codec::int2};
inline constexpr std::size_t kCounts[] = {0,    1,    2,    3,    4,    5,    7,   63,
                                          1021, 1023, 1024, 1025, 2048, 3079, 5000};

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kHuge = std::numeric_limits<float>::max();
inline constexpr float kTiny = std::numeric_limits<float>::denorm_min();

inline std::size_t bytes_of(Codec codec, std::size_t count) {
  return wire::values_bytes(codec, sizeof(float), count);
}

inline float levels_of(Codec codec) {
  return static_cast<float>(largest_level(bits_per_value(codec, sizeof(float))));
}

// Memory of exactly the size, off its alignment, so that an address sanitizer sees what goes
// beyond.
struct Encoded {
  explicit Encoded(std::size_t bytes) : storage(bytes + 1) {}
  std::byte* data() { return storage.data() + 1; }
  std::span<std::byte> view() { return std::span(storage).subspan(1); }
  bool operator==(const Encoded&) const = default;

  Buffer storage;
};

inline Encoded encode(const Kernels& table, Codec codec, const Floats& values, std::uint64_t key) {
  Encoded out(bytes_of(codec, values.size()));
  REQUIRE(table.encode(codec, values.data(), values.size(), key, out.data()));
  return out;
}

inline Encoded encode(Codec codec, const Floats& values, std::uint64_t key) {
  return encode(kernels(), codec, values, key);
}

inline Floats decode(const Kernels& table, Codec codec, Encoded encoded, std::size_t count) {
  Floats values(count);
  table.decode(codec, encoded.data(), count, values.data());
  return values;
}

inline Floats round_trip(Codec codec, const Floats& values, std::uint64_t key) {
  return decode(kernels(), codec, encode(codec, values, key), values.size());
}

inline bool can_encode(Codec codec, const Floats& values) {
  bool first = false;
  for (const Kernels* table : available_kernels()) {
    Encoded out(bytes_of(codec, values.size()));
    const bool encoded = table->encode(codec, values.data(), values.size(), 1, out.data());
    if (table == available_kernels().front()) first = encoded;
    CHECK(encoded == first);
  }
  return first;
}

inline Floats random_floats(std::size_t count, Random& random) {
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = one_in(8, random) ? 0.0f : normal(random);
  return values;
}

// Finite values of any magnitude, with subnormal and negative ones among them.
inline Floats wild_floats(std::size_t count, Random& random) {
  Floats values(count);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    } while (!std::isfinite(value));
  }
  return values;
}

inline bool is_refused(Codec codec, std::span<const std::byte> values, std::size_t count) {
  const Status status = wire::check_values(codec, sizeof(float), values, count);
  if (status) CHECK(status->code == ErrorCode::protocol);
  return status.has_value();
}

// Calls visit(first, length, scale) for the spans of `values`.
template <typename Visit>
inline void for_each_span_of(const Floats& values, Visit visit) {
  for (std::size_t first = 0; first < values.size(); first += kSpan) {
    const std::size_t length = std::min(kSpan, values.size() - first);
    float scale = 0;
    for (std::size_t i = first; i < first + length; ++i) {
      scale = std::max(scale, std::fabs(values[i]));
    }
    visit(first, length, scale);
  }
}

}  // namespace sparsewire::test
