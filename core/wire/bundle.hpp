// A bundle: segments of several chunks in one frame, as workers send them to each other.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/codec.hpp"
#include "base/error.hpp"
#include "wire/frame.hpp"
#include "wire/limits.hpp"

namespace sparsewire::wire {

// One segment of a bundle. Byte layout, little endian: chunk u64, format u8, codec u8, zero u16,
// size u32, then the payload.
struct Piece {
  std::uint64_t chunk = 0;
  Format format = Format::empty;
  Codec codec = Codec::raw;
  Bytes payload;
};
inline constexpr std::size_t kPieceHeaderBytes = 16;

// Bundles are cut at this size; a single large piece may exceed it.
inline constexpr std::size_t kBundleBytes = 1u << 20;
inline constexpr std::size_t kMaxBundleBytes = 1u << 30;

// As many of the pieces as fit, from `first` on; moves `first` behind them.
Bytes encode_bundle(std::span<const Piece> pieces, std::size_t& first);

// Appends the pieces to `out`; their payloads share the bundle's memory. Chunks must ascend, also
// from what is there already, and no piece may be empty. The payloads themselves are not checked.
Status decode_bundle(const Bytes& bundle, std::vector<Piece>& out);

}  // namespace sparsewire::wire
