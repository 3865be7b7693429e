// What all ranks must agree on: the topology of a communicator, fixed for its life, and the call of
// each operation. Owners compare descriptors of calls; in the exchange ranks send each other joins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/types.hpp"

namespace sparsewire::wire {

inline constexpr std::uint32_t kMaxWorldSize = 65536;

// Byte layout, little endian, of a hello: the seven fields in this order, lane and owner, each u32.
struct Topology {
  std::uint32_t world_size = 1;
  std::uint32_t lanes = 1;
  std::uint32_t owners = 1;
  std::uint32_t block = 256;                     // elements
  std::uint32_t window_bytes = 4 * 1024 * 1024;  // what a rank may have in flight at an owner
  std::uint32_t peer_timeout_ms = 30'000;        // time without a sign of life until a peer is lost
  std::uint32_t datagram_bytes = 0;              // largest datagram to an owner; 0: none are sent

  std::uint64_t streams() const { return std::uint64_t{lanes} * owners; }
  bool operator==(const Topology&) const = default;
};

// What a worker tells a dedicated owner: the topology, and the lane and owner of this connection.
struct Hello {
  Topology topology;
  std::uint32_t lane = 0;
  std::uint32_t owner = 0;
};
inline constexpr std::size_t kTopologyBytes = 36;

Status check(const Topology& topology);

Bytes encode_hello(const Hello& hello);
Result<Hello> decode_hello(std::span<const std::byte> in);

// The form of results: as owners may send them, or as their caller wants them.
enum class ResultForm : std::uint8_t {
  cheapest = 0,  // any
  sparse,        // by blocks or elements
  dense,         // dense
};
inline constexpr std::uint8_t kResultFormCount = 3;

constexpr std::string_view name_of(ResultForm form) {
  constexpr std::string_view names[kResultFormCount] = {"auto", "sparse", "dense"};
  return names[static_cast<std::size_t>(form)];
}

enum class Collective : std::uint8_t {
  all_reduce = 0,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather,
  barrier  // no rank brings anything; it runs as a sum
};
inline constexpr std::uint8_t kCollectiveCount = 6;

constexpr std::string_view name_of(Collective collective) {
  constexpr std::string_view names[kCollectiveCount] = {
      "all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "barrier"};
  return names[static_cast<std::size_t>(collective)];
}

// What a rank's caller asked for. It may run as something else: a dense broadcast is a sum of
// words, most of them zero. Ranks compare purposes, and errors name them. Byte layout, little
// endian: collective u8, dtype u8, result form u8, zero u8, root u32, elements u64, site u32, zero
// u32.
struct Purpose {
  Collective collective = Collective::all_reduce;
  ResultForm form = ResultForm::cheapest;  // that the caller wants; cheapest: any
  std::uint32_t root = 0;
  // The size of the caller's array, if other elements travel in its place, and its dtype.
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
  std::uint32_t site = 0;  // where in the program the call was made; 0: not told

  bool operator==(const Purpose&) const = default;
};
inline constexpr std::size_t kPurposeBytes = 24;

// Byte layout, little endian: dtype u8, op u8, sparse u8 (2: and striped), result form u8, row u32,
// count u64, segment codec u8, result codec u8, zero u16, seed u32; and the purpose.
struct Descriptor {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;  // elements
  bool is_sparse = false;   // the input is a sparse vector
  bool is_striped = false;  // and the chunks are made of stripes
  std::uint32_t row = 1;    // elements that one index stands for
  ResultForm form = ResultForm::cheapest;
  Codec segment_codec = Codec::raw;  // of what the ranks send
  Codec result_codec = Codec::raw;   // of sums
  std::uint32_t seed = 0;            // of stochastic rounding
  Purpose purpose = {};

  // Whether values are rounded at random before they are sent.
  bool is_stochastic() const {
    return sparsewire::is_stochastic(segment_codec) || sparsewire::is_stochastic(result_codec);
  }

  bool operator==(const Descriptor&) const = default;
};
inline constexpr std::size_t kDescriptorBytes = 24 + kPurposeBytes;

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out);
Result<Descriptor> decode_descriptor(std::span<const std::byte> in);

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

constexpr std::string_view name_of(Algorithm algorithm) {
  constexpr std::string_view names[kAlgorithmCount] = {
      "auto", "stream",   "ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather",
      "ring", "allgather"};
  return names[static_cast<std::size_t>(algorithm)];
}

// The collective that a rank has issued, with its descriptor.
struct Call {
  Descriptor descriptor;
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t root = 0;
  // Positions of a row that a reduce_scatter must not divide; the vector is made of such rows.
  std::uint32_t unit = 1;

  bool operator==(const Call&) const = default;
};

// For error messages: "sparse sum of 1000 float32 in rows of 64", or its purpose, such as
// "broadcast with root 2 of 1000 float64"; and "reduce with root 2 (sparse sum of 1000 float32)".
std::string describe(const Descriptor& descriptor);
std::string describe(const Call& call);

// Equal stretches of a vector, in which `crowded` of a join counts.
inline constexpr std::uint64_t kCrowdStretches = 16;

// Tells other ranks which sparse collective a rank has called, and how much it brings. Byte layout,
// little endian: the descriptor, collective u8, algorithm u8, zero u16, root u32, elements u64,
// unit u32, zero u32, crowded u64.
struct Join {
  Call call;
  // The elements that this rank names, and those of them in the fullest sixteenth of the vector.
  // Only in these fields may ranks differ.
  std::uint64_t elements = 0;
  std::uint64_t crowded = 0;
};
inline constexpr std::size_t kJoinBytes = kDescriptorBytes + 32;

void encode(const Join& join, std::span<std::byte, kJoinBytes> out);
Result<Join> decode_join(std::span<const std::byte> in);

// What many ranks bring together that have made the same call: those of a branch of the tree of
// joins, or all. Byte layout, little endian: elements u64, most u64, crowded u64; and, if the
// collective needs it, what each rank names, u64, one after the other.
struct Tally {
  std::uint64_t elements = 0;  // that the ranks name
  std::uint64_t most = 0;      // that one of them names
  std::uint64_t crowded = 0;   // as in joins
  std::vector<std::uint64_t> of_each = {};
};
inline constexpr std::size_t kTallyBytes = 24;
inline constexpr std::size_t kMaxTallyBytes = kTallyBytes + kMaxWorldSize * 8;

// Whether ranks must know how much each rank brings, because each fills a list of its own.
constexpr bool tells_each(const Call& call) { return call.collective == Collective::all_gather; }

Bytes encode_tally(const Tally& tally);
// `ranks` is how many ranks have made this call.
Result<Tally> decode_tally(std::span<const std::byte> in, const Call& call, std::size_t ranks);

// How many ranks a message names that a neighbour waits for, at most: it has so many neighbours.
// Byte layout, little endian: each a u32, ascending.
inline constexpr std::size_t kMaxMissing = 5;

Bytes encode_missing(std::span<const Rank> ranks);
Result<std::vector<Rank>> decode_missing(std::span<const std::byte> in, Rank world_size);

}  // namespace sparsewire::wire
