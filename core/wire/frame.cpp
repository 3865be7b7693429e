// Encodes and decodes frame headers and faults; the rules of each kind of frame stand in one table.
#include "wire/frame.hpp"

#include <algorithm>

#include "wire/agreement.hpp"
#include "wire/layout.hpp"
#include "wire/segment.hpp"

namespace sparsewire::wire {
namespace {

struct PayloadBounds {
  std::size_t min;
  std::size_t max;
};

PayloadBounds payload_bounds(FrameKind kind, Format format) {
  switch (kind) {
    case FrameKind::hello:
      return {kTopologyBytes, kTopologyBytes};
    case FrameKind::open:
      return {kDescriptorBytes, kDescriptorBytes};
    case FrameKind::segment:
      return {1, kMaxPayload};
    case FrameKind::result:
      if (format == Format::empty) break;
      return {1, kMaxPayload};
    case FrameKind::fail:
    case FrameKind::abort:
    case FrameKind::refuse:
    case FrameKind::decline:
      return {kFaultHeaderBytes, kFaultHeaderBytes + kMaxFaultText};
    case FrameKind::cancel:
    case FrameKind::goodbye:
    case FrameKind::heartbeat:
    case FrameKind::silence:
      break;
    case FrameKind::join:
      return {kJoinBytes, kJoinBytes};
    case FrameKind::tally:
      return {kTallyBytes, kMaxTallyBytes};
    case FrameKind::missing:
      return {0, kMaxMissing * sizeof(std::uint32_t)};
    case FrameKind::part:
      return {0, kMaxBundleBytes};
  }
  return {0, 0};
}

bool format_allowed(FrameKind kind, Format format) {
  if (format == Format::packed || format == Format::packed_rows) return false;
  if (kind == FrameKind::segment) return format != Format::empty;
  return kind == FrameKind::result || format == Format::empty;
}

Status check(const FrameHeader& header) {
  if (!format_allowed(header.kind, header.format))
    return protocol_error("frame: format not allowed");
  const PayloadBounds bounds = payload_bounds(header.kind, header.format);
  if (header.payload < bounds.min || header.payload > bounds.max) {
    return protocol_error("frame: payload of " + std::to_string(header.payload) +
                          " bytes is out of bounds");
  }
  if (header.seq > kMaxSequence) return protocol_error("frame: sequence out of range");
  const bool carries_values = header.format != Format::empty;
  if (!carries_values && header.codec != Codec::raw) {
    return protocol_error("frame: a codec without values");
  }
  if (carries_values && header.chunk >= header.next) {
    return protocol_error("frame: the next chunk does not come after this one");
  }
  return {};
}

// A chunk, and half of a group's number above it.
constexpr int kChunkBits = 48;
constexpr std::uint64_t kNoChunkBits = kMaxChunk + 1;

std::uint64_t packed(std::uint64_t chunk, std::uint32_t half) {
  return std::min(chunk, kNoChunkBits) | std::uint64_t{half} << kChunkBits;
}

std::uint64_t chunk_of(std::uint64_t packed) {
  const std::uint64_t chunk = packed & kNoChunkBits;
  return chunk == kNoChunkBits ? kNoChunk : chunk;
}

// How many bytes of a text fit into the limit without cutting a character in two.
std::size_t length_that_fits(const std::string& text) {
  if (text.size() <= kMaxFaultText) return text.size();
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  std::size_t length = kMaxFaultText;
  while (length != 0 && continues(length)) --length;
  return length;
}

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out) {
  const auto form = static_cast<std::uint8_t>(static_cast<unsigned>(header.format) |
                                              static_cast<unsigned>(header.codec) << 4);
  store_all(out, header.kind, form, header.owner, header.payload, header.seq,
            packed(header.chunk, header.group & 0xffff), packed(header.next, header.group >> 16));
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> in) {
  const auto [kind, form, owner, payload, seq, low, high] =
      load_all<std::uint8_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t,
               std::uint64_t, std::uint64_t>(in);
  const unsigned format = form & 0xf;
  const unsigned codec = form >> 4;
  if (kind == 0 || kind > kFrameKindLast) return protocol_error("frame: unknown kind");
  if (format >= kFormatCount) return protocol_error("frame: unknown format");
  if (codec >= kCodecCount) return protocol_error("frame: unknown codec");
  const FrameHeader header{
      .kind = static_cast<FrameKind>(kind),
      .format = static_cast<Format>(format),
      .codec = static_cast<Codec>(codec),
      .owner = owner,
      .payload = payload,
      .seq = seq,
      .chunk = chunk_of(low),
      .next = chunk_of(high),
      .group = static_cast<std::uint32_t>((low >> kChunkBits) | (high >> kChunkBits << 16))};
  if (Status error = check(header)) return *std::move(error);
  return header;
}

Bytes encode_fault(const Error& error) {
  const std::size_t text = length_that_fits(error.message);
  auto owner = Bytes::allocate(kFaultHeaderBytes + text);
  store_all(std::span<std::byte, kFaultHeaderBytes>(owner.get(), kFaultHeaderBytes), error.code,
            std::uint8_t{0}, std::uint16_t{0}, static_cast<std::uint32_t>(error.rank));
  std::memcpy(owner.get() + kFaultHeaderBytes, error.message.data(), text);
  return Bytes::shared(std::move(owner), kFaultHeaderBytes + text);
}

Result<Fault> decode_fault(std::span<const std::byte> in) {
  if (in.size() < kFaultHeaderBytes || in.size() > kFaultHeaderBytes + kMaxFaultText) {
    return protocol_error("fault: wrong size");
  }
  const auto [code, zero, zeros, blamed] =
      load_all<std::uint8_t, std::uint8_t, std::uint16_t, std::uint32_t>(
          in.first<kFaultHeaderBytes>());
  if (code >= kErrorCodeCount) return protocol_error("fault: unknown code");
  if (zero != 0 || zeros != 0) return protocol_error("fault: reserved bits are set");
  const auto rank = static_cast<Rank>(blamed);
  if (rank < kNoRank) return protocol_error("fault: rank out of range");
  const auto text = in.subspan(kFaultHeaderBytes);
  return Fault{{static_cast<ErrorCode>(code), rank,
                std::string(reinterpret_cast<const char*>(text.data()), text.size())}};
}

Message fault_message(FrameKind kind, const Error& error, std::uint64_t seq) {
  return message_of({.kind = kind, .seq = seq}, encode_fault(error));
}

}  // namespace sparsewire::wire
