// Frames: a header of 32 bytes in front of everything that crosses a connection, and faults, the
// payload that several kinds share.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/types.hpp"
#include "wire/layout.hpp"

namespace sparsewire::wire {

enum class FrameKind : std::uint8_t {
  hello = 1,  // worker -> dedicated owner, first of all: the topology that all ranks must share.
  open,       // worker -> owner: what the operation is, and the first chunk it will contribute to.
  segment,    // worker -> owner: its values of one chunk, and the next chunk it will contribute to.
  result,     // owner -> worker: the union's values of one chunk, and the next chunk to expect.
  fail,       // owner -> worker: the operation cannot be done; the payload is a Fault.
  cancel,     // worker -> owner: nothing more will come for this operation.
  abort,      // either way: nothing more will come at all; the payload is a Fault.
  goodbye,    // either way: rank `chunk` has issued `seq` operations and leaves in good order.
  refuse,     // worker -> all: it cannot take part in the operation; the payload is a Fault.
  join,       // worker -> worker: it has called a sparse collective; the payload is a Join.
  part,       // worker -> worker: a Bundle of part `chunk`; `next` is kNoChunk in the last one.
  heartbeat,  // either way: the sender is alive and has nothing else to say.
  silence,    // dedicated owner -> worker: no sign of life from rank `chunk` for `seq` ms; 0: it is
              // back.
  decline,  // deputy -> owner: its host cannot take part in the operation; the payload is a Fault.
  tally,    // worker -> worker: all ranks of a branch have joined, or all ranks; a Tally.
  missing,  // worker -> worker: which ranks have not joined? With a payload: these, as u32.
};
inline constexpr std::uint8_t kFrameKindLast = static_cast<std::uint8_t>(FrameKind::missing);

// Last words and signs of life, which belong to no operation.
constexpr bool is_control(FrameKind kind) {
  return kind == FrameKind::abort || kind == FrameKind::goodbye || kind == FrameKind::heartbeat ||
         kind == FrameKind::silence;
}

enum class Format : std::uint8_t {
  empty = 0,    // no values
  dense,        // every element of the chunk
  blocks,       // a bitmap over the chunk's blocks, then the blocks whose bit is set
  bitmap,       // a bitmap over the chunk's elements, then the elements whose bit is set
  coordinates,  // 16-bit indices inside the chunk, ascending, then as many elements
  packed,       // coordinates of many chunks; only in bundles
  packed_rows,  // the same for whole rows, with one index for each row
};
inline constexpr std::uint8_t kFormatCount = 7;

// Whether single elements are left out, and not whole blocks only.
constexpr bool is_by_element(Format format) {
  return format == Format::bitmap || format == Format::coordinates;
}

// Byte layout, little endian: kind u8, format u8 in its low and codec in its high four bits, owner
// u16, payload u32, seq u64, chunk u48, low half of group u16, next u48, high half of group u16.
// For a chunk, all ones mean none.
struct FrameHeader {
  FrameKind kind = FrameKind::goodbye;
  Format format = Format::empty;
  Codec codec = Codec::raw;   // of the values
  std::uint16_t owner = 0;    // to or from which owner, if a rank may speak for several
  std::uint32_t payload = 0;  // bytes that follow the header
  std::uint64_t seq = 0;
  std::uint64_t chunk = kNoChunk;
  std::uint64_t next = kNoChunk;
  std::uint32_t group = 0;  // number of the group of ranks, which shares the connection with others

  bool operator==(const FrameHeader&) const = default;
};
inline constexpr std::size_t kHeaderBytes = 32;

struct Message {
  FrameHeader header;
  Bytes payload;
};

// The header with the size of what follows it.
inline Message message_of(FrameHeader header, Bytes payload) {
  header.payload = static_cast<std::uint32_t>(payload.size());
  return {header, std::move(payload)};
}

void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out);

// Every field is checked against its bounds and against what its kind allows.
Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> in);

// An error that travels, as the payload of fail, refuse, decline and abort frames.
// Byte layout, little endian: code u8, zero u8, zero u16, rank u32 (two's complement), UTF-8 text.
inline constexpr std::size_t kFaultHeaderBytes = 8;

struct Fault {
  Error error;
};

// Text beyond the limit is cut.
Bytes encode_fault(const Error& error);
Result<Fault> decode_fault(std::span<const std::byte> in);

// Calls take(error) with the error of a frame that holds one.
template <typename Take>
Status take_fault(const Message& message, Take&& take) {
  const auto fault = decode_fault(message.payload.view());
  if (!fault) return fault.error();
  take(fault->error);
  return {};
}

// A frame of such a kind. An abort has no sequence number.
Message fault_message(FrameKind kind, const Error& error, std::uint64_t seq = 0);

}  // namespace sparsewire::wire
