// A join: how a rank tells all others which sparse collective it has called, and how much it
// brings.
#pragma once

#include "wire/descriptor.hpp"

namespace sparsewire::wire {

enum class Collective : std::uint8_t {
  all_reduce = 0,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather
};
inline constexpr std::uint8_t kCollectiveCount = 5;
std::string_view name_of(Collective collective);

enum class Algorithm : std::uint8_t {
  automatic = 0,
  stream,
  ssar_recursive_double,
  ssar_split_allgather,
  dsar_split_allgather,
  ring,
  allgather
};
inline constexpr std::uint8_t kAlgorithmCount = 7;
std::string_view name_of(Algorithm algorithm);

// Equal stretches of a vector, in which `crowded` of a join counts.
inline constexpr std::uint64_t kCrowdStretches = 16;

// Byte layout, little endian: the descriptor, collective u8, algorithm u8, zero u16, root u32,
// elements u64, unit u32, zero u32, crowded u64.
struct Join {
  Descriptor descriptor;
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t root = 0;
  std::uint32_t unit =
      1;  // rows that a reduce_scatter must not divide; of these the vector is made
  // What this rank names, in elements, and what of it lies in the sixteenth of the vector that
  // holds the most of it: the fields in which ranks may differ.
  std::uint64_t elements = 0;
  std::uint64_t crowded = 0;

  bool agrees_with(const Join& other) const;
};
inline constexpr std::size_t kJoinBytes = kDescriptorBytes + 32;

void encode(const Join& join, std::span<std::byte, kJoinBytes> out);
Result<Join> decode_join(std::span<const std::byte> in);

// For error messages: "reduce to rank 2 (sparse sum of 1000 float32)".
std::string describe(const Join& join);

}  // namespace sparsewire::wire
