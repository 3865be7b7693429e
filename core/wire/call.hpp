// A call: which collective a rank has issued, and of what. All ranks must say the same.
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

struct Call {
  Descriptor descriptor;
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t root = 0;
  // Rows that a reduce_scatter must not divide; of these the vector is made.
  std::uint32_t unit = 1;

  bool operator==(const Call&) const = default;
};

// For error messages: "reduce to rank 2 (sparse sum of 1000 float32)".
std::string describe(const Call& call);

}  // namespace sparsewire::wire
