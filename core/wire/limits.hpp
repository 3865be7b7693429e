// The bounds that every decoder holds: nothing from the wire may ask for more than this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire::wire {

// Version of everything in this folder; both ends of a connection must speak the same one.
inline constexpr std::uint32_t kVersion = 3;

inline constexpr std::uint64_t kNoChunk = UINT64_MAX;  // "I contribute nothing further."

inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 62;

inline constexpr std::size_t kMaxChunkElements = 65536;
inline constexpr std::size_t kMinBlock = 16;
inline constexpr std::size_t kMaxBlock = 4096;

inline constexpr std::size_t kMaxBitmapBytes = kMaxChunkElements / kMinBlock / 8;
inline constexpr std::size_t kMaxPayload = kMaxChunkElements * 8 + kMaxBitmapBytes;
inline constexpr std::size_t kMaxFaultText = 512;

}  // namespace sparsewire::wire
