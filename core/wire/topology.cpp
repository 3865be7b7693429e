// Checks, encodes and decodes topologies.
#include "wire/topology.hpp"

#include <string>

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {
namespace {

constexpr std::uint32_t kMaxWorldSize = 65536;
constexpr std::uint32_t kMaxLanes = 64;
constexpr std::uint32_t kMaxOwners = 65536;
constexpr std::uint32_t kMinWindowBytes = 1u << 14;
constexpr std::uint32_t kMaxWindowBytes = 1u << 30;
constexpr std::uint32_t kMinPeerTimeoutMs = 100;
constexpr std::uint32_t kMaxPeerTimeoutMs = 24 * 3600 * 1000;

Status in_range(const char* name, std::uint32_t value, std::uint32_t min, std::uint32_t max) {
  if (value >= min && value <= max) return {};
  return protocol_error(std::string("topology: ") + name + " is " + std::to_string(value) +
                        ", allowed are " + std::to_string(min) + " to " + std::to_string(max));
}

}  // namespace

Status check(const Topology& topology) {
  if (Status error = in_range("world_size", topology.world_size, 1, kMaxWorldSize)) return error;
  if (Status error = in_range("lanes", topology.lanes, 1, kMaxLanes)) return error;
  if (Status error = in_range("owners", topology.owners, 1, kMaxOwners)) return error;
  if (Status error = in_range("block", topology.block, kMinBlock, kMaxBlock)) return error;
  if ((topology.block & (topology.block - 1)) != 0) {
    return protocol_error("topology: block is not a power of two");
  }
  if (Status error =
          in_range("window_bytes", topology.window_bytes, kMinWindowBytes, kMaxWindowBytes)) {
    return error;
  }
  return in_range("peer_timeout_ms", topology.peer_timeout_ms, kMinPeerTimeoutMs,
                  kMaxPeerTimeoutMs);
}

Bytes encode_hello(const Hello& hello) {
  auto owner = Bytes::allocate(kTopologyBytes);
  const Topology& topology = hello.topology;
  const std::uint32_t fields[] = {
      topology.world_size,   topology.lanes,           topology.owners, topology.block,
      topology.window_bytes, topology.peer_timeout_ms, hello.lane,      hello.owner};
  for (std::size_t i = 0; i < std::size(fields); ++i) store(owner.get() + 4 * i, fields[i]);
  return Bytes::shared(std::move(owner), kTopologyBytes);
}

Result<Hello> decode_hello(std::span<const std::byte> in) {
  if (in.size() != kTopologyBytes) return protocol_error("hello: wrong size");
  const auto field = [&](std::size_t i) { return load<std::uint32_t>(in.data() + 4 * i); };
  const Hello hello{{.world_size = field(0),
                     .lanes = field(1),
                     .owners = field(2),
                     .block = field(3),
                     .window_bytes = field(4),
                     .peer_timeout_ms = field(5)},
                    field(6),
                    field(7)};
  if (Status error = check(hello.topology)) return *std::move(error);
  if (hello.lane >= hello.topology.lanes || hello.owner >= hello.topology.owners) {
    return protocol_error("hello: lane or owner out of range");
  }
  return hello;
}

}  // namespace sparsewire::wire
