// Encodes and decodes bundles.
#include "wire/bundle.hpp"

#include "wire/little_endian.hpp"

namespace sparsewire::wire {
namespace {

std::size_t size_of(const Piece& piece) { return kPieceHeaderBytes + piece.payload.size(); }

std::byte* encode(const Piece& piece, std::byte* at) {
  store(at, piece.chunk);
  store(at + 8, static_cast<std::uint8_t>(piece.format));
  store(at + 9, static_cast<std::uint8_t>(piece.codec));
  store(at + 10, std::uint16_t{0});
  store(at + 12, static_cast<std::uint32_t>(piece.payload.size()));
  std::memcpy(at + kPieceHeaderBytes, piece.payload.data(), piece.payload.size());
  return at + size_of(piece);
}

struct PieceHeader {
  std::uint64_t chunk;
  std::uint8_t format;
  std::uint8_t codec;
  std::uint16_t reserved;
  std::uint32_t size;
};

PieceHeader load_header(const std::byte* at) {
  return {load<std::uint64_t>(at), load<std::uint8_t>(at + 8), load<std::uint8_t>(at + 9),
          load<std::uint16_t>(at + 10), load<std::uint32_t>(at + 12)};
}

bool is_valid(const PieceHeader& header, std::size_t bytes_left) {
  return header.format != 0 && header.format < kFormatCount && header.codec < kCodecCount &&
         header.reserved == 0 && header.size != 0 && header.size <= bytes_left;
}

}  // namespace

Bytes encode_bundle(std::span<const Piece> pieces, std::size_t& first) {
  std::size_t size = 0;
  std::size_t last = first;
  while (last < pieces.size() && (size == 0 || size + size_of(pieces[last]) <= kBundleBytes)) {
    size += size_of(pieces[last++]);
  }
  if (size == 0) return {};
  auto owner = Bytes::allocate(size);
  std::byte* at = owner.get();
  for (; first < last; ++first) at = encode(pieces[first], at);
  return Bytes::shared(std::move(owner), size);
}

Status decode_bundle(const Bytes& bundle, std::vector<Piece>& out) {
  for (std::size_t at = 0; at < bundle.size();) {
    if (bundle.size() - at < kPieceHeaderBytes) return protocol_error("bundle: it is cut off");
    const PieceHeader header = load_header(bundle.data() + at);
    at += kPieceHeaderBytes;
    if (!is_valid(header, bundle.size() - at))
      return protocol_error("bundle: a piece is malformed");
    if (!out.empty() && header.chunk <= out.back().chunk) {
      return protocol_error("bundle: its chunks do not ascend");
    }
    out.push_back({header.chunk, static_cast<Format>(header.format),
                   static_cast<Codec>(header.codec), bundle.part(at, header.size)});
    at += header.size;
  }
  return {};
}

}  // namespace sparsewire::wire
