// The operation's descriptor: what all ranks must agree on before anything is added.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/codec.hpp"
#include "base/error.hpp"
#include "base/types.hpp"

namespace sparsewire::wire {

// What results look like: the formats in which owners may send them, and what their caller wants.
enum class ResultForm : std::uint8_t {
  cheapest = 0,  // any
  sparse,        // by blocks or elements
  dense,         // dense
};
inline constexpr std::uint8_t kResultFormCount = 3;

constexpr std::string_view name_of(ResultForm form) {
  return std::array<std::string_view, kResultFormCount>{"auto", "sparse",
                                                        "dense"}[static_cast<std::size_t>(form)];
}

// Byte layout, little endian: dtype u8, op u8, sparse u8 (2: and
// striped), result form u8, row u32, count u64,
// segment codec u8, result codec u8, zero u16, seed u32.
struct Descriptor {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;  // elements
  bool is_sparse = false;   // the input is a sparse vector
  bool is_striped = false;  // and its chunks are dealt out by stripes
  std::uint32_t row = 1;    // elements that one index stands for
  ResultForm form = ResultForm::cheapest;
  Codec segment_codec = Codec::raw;  // of what the ranks send
  Codec result_codec = Codec::raw;   // of sums
  std::uint32_t seed = 0;            // of stochastic rounding

  // Whether values are rounded at random on their way.
  bool is_stochastic() const {
    return sparsewire::is_stochastic(segment_codec) || sparsewire::is_stochastic(result_codec);
  }

  bool operator==(const Descriptor&) const = default;
};
inline constexpr std::size_t kDescriptorBytes = 24;

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out);
Result<Descriptor> decode_descriptor(std::span<const std::byte> in);

// For error messages: "sum of 1000 float32", "sparse sum of 1000 float32 in rows of 64".
std::string describe(const Descriptor& descriptor);

}  // namespace sparsewire::wire
