// Encodes and decodes the frame header; the rules of each kind of frame stand in one table.
#include "wire/frame.hpp"

#include "wire/bundle.hpp"
#include "wire/descriptor.hpp"
#include "wire/fault.hpp"
#include "wire/join.hpp"
#include "wire/little_endian.hpp"
#include "wire/topology.hpp"

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
      if (format == Format::empty) return {0, 0};
      return {1, kMaxPayload};
    case FrameKind::fail:
    case FrameKind::abort:
    case FrameKind::refuse:
      return {kFaultHeaderBytes, kFaultHeaderBytes + kMaxFaultText};
    case FrameKind::cancel:
    case FrameKind::goodbye:
    case FrameKind::heartbeat:
    case FrameKind::silence:
      return {0, 0};
    case FrameKind::join:
      return {kJoinBytes, kJoinBytes};
    case FrameKind::part:
      return {0, kMaxBundleBytes};
  }
  return {0, 0};
}

bool format_allowed(FrameKind kind, Format format) {
  if (format == Format::packed) return false;
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

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out) {
  std::byte* at = out.data();
  store(at, static_cast<std::uint8_t>(header.kind));
  store(at + 1, static_cast<std::uint8_t>(header.format));
  store(at + 2, static_cast<std::uint8_t>(header.codec));
  store(at + 3, std::uint8_t{0});
  store(at + 4, header.payload);
  store(at + 8, header.seq);
  store(at + 16, header.chunk);
  store(at + 24, header.next);
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> in) {
  const std::byte* at = in.data();
  const auto kind = load<std::uint8_t>(at);
  const auto format = load<std::uint8_t>(at + 1);
  if (kind == 0 || kind > kFrameKindLast) return protocol_error("frame: unknown kind");
  if (format >= kFormatCount) return protocol_error("frame: unknown format");
  const auto codec = load<std::uint8_t>(at + 2);
  if (codec >= kCodecCount) return protocol_error("frame: unknown codec");
  if (load<std::uint8_t>(at + 3) != 0) return protocol_error("frame: reserved bits are set");
  const FrameHeader header{
      .kind = static_cast<FrameKind>(kind),
      .format = static_cast<Format>(format),
      .codec = static_cast<Codec>(codec),
      .payload = load<std::uint32_t>(at + 4),
      .seq = load<std::uint64_t>(at + 8),
      .chunk = load<std::uint64_t>(at + 16),
      .next = load<std::uint64_t>(at + 24),
  };
  if (Status error = check(header)) return *std::move(error);
  return header;
}

}  // namespace sparsewire::wire
