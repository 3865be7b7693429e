// The topology of a communicator: what is fixed for its life and the same on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace sparsewire::wire {

// Byte layout, little endian, of a hello: the six fields in this order, lane and owner, each u32.
struct Topology {
  std::uint32_t world_size = 1;
  std::uint32_t lanes = 1;
  std::uint32_t owners = 1;
  std::uint32_t block = 256;                     // elements
  std::uint32_t window_bytes = 4 * 1024 * 1024;  // what a rank may have in flight at an owner
  std::uint32_t peer_timeout_ms = 30'000;        // without a sign of life, until a peer is lost

  std::uint64_t streams() const { return std::uint64_t{lanes} * owners; }
  bool operator==(const Topology&) const = default;
};

// What a worker tells a dedicated owner about itself and about the part it wants it to play.
struct Hello {
  Topology topology;
  std::uint32_t lane = 0;
  std::uint32_t owner = 0;
};
inline constexpr std::size_t kTopologyBytes = 32;

Status check(const Topology& topology);

Bytes encode_hello(const Hello& hello);
Result<Hello> decode_hello(std::span<const std::byte> in);

}  // namespace sparsewire::wire
