// Datagrams, which cross between a worker and an aggregator's slots. One datagram is one round of
// one slot: a header, a record for each column, and the blocks of the columns that have one.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "base/types.hpp"

namespace sparsewire::wire {

inline constexpr std::uint8_t kDatagramVersion = 2;

enum class DatagramKind : std::uint8_t {
  contribution = 1,  // of a worker, to a round of a slot
  result,            // of a round, to every worker
  recall,            // the last result again, to a worker whose contribution has not come
  hello,             // of a worker, so that the aggregator learns its address; padded
  welcome,           // the answer: as long as the hello, or as a result of the block that it names
  noted,             // a process has heard the hello, which its kernel is to answer
};

constexpr bool is_greeting(DatagramKind kind) {
  return kind == DatagramKind::hello || kind == DatagramKind::welcome ||
         kind == DatagramKind::noted;
}

inline constexpr std::uint32_t kNoBlock = UINT32_MAX;  // "no further block in this column"
inline constexpr std::size_t kMaxColumns = 8;

// The float32 exponents of an infinity or NaN, and of a zero or subnormal value.
inline constexpr std::uint8_t kNotFinite = 255;
inline constexpr std::uint8_t kLeastExponent = 1;

// Byte layout, little endian: version u8, kind u8, worker u16, slot u16, columns u8, present u8,
// job u64, epoch u32, dtype u8, op u8, block u16, round u64, tag u64.
struct DatagramHeader {
  DatagramKind kind = DatagramKind::contribution;
  std::uint16_t worker = 0;  // that contributes; in a result, the last that contributed
  std::uint16_t slot = 0;    // in a greeting, the first of its flow
  std::uint8_t columns = 1;
  std::uint8_t present = 0;  // bit c: the block of column c is here
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  DType dtype = DType::float32;  // of the values; int32 in fixed point
  ReduceOp op = ReduceOp::sum;
  std::uint16_t block = 0;  // elements of a block in a datagram
  std::uint64_t round = 0;  // of the slot, from 0 on, through all operations; no number comes back

  std::size_t block_bytes() const { return block * element_size(dtype); }
  std::size_t values_bytes() const {
    return static_cast<std::size_t>(__builtin_popcount(present)) * block_bytes();
  }
  bool operator==(const DatagramHeader&) const = default;
};
inline constexpr std::size_t kDatagramHeaderBytes = 40;
inline constexpr std::size_t kTagOffset = 32;

// The record of one column. Byte layout: next u32, exponent u8, zeros.
struct ColumnRecord {
  std::uint32_t next =
      kNoBlock;               // the next block here that the sender, or in a result any worker, has
  std::uint8_t exponent = 0;  // biased, as in a float32: of its largest magnitude

  bool operator==(const ColumnRecord&) const = default;
};
inline constexpr std::size_t kColumnBytes = 8;

// Bytes before the values, which are aligned to 8.
constexpr std::size_t datagram_head(std::size_t columns) {
  return kDatagramHeaderBytes + columns * kColumnBytes;
}

// A datagram in the memory in which it came.
struct Datagram {
  DatagramHeader header;
  ColumnRecord columns[kMaxColumns];
  std::span<const std::byte> values;  // in a greeting, all that follows its header

  bool has(std::size_t column) const { return (header.present >> column & 1) != 0; }
};

// Writes header and records in front of the values, which may be there already or come later. The
// tag is zero. Returns the size with the values.
std::size_t encode(const DatagramHeader& header, std::span<const ColumnRecord> columns,
                   std::span<std::byte> out);

// An error for anything but a whole datagram of this version. Greetings have no columns, and
// any length.
Result<Datagram> decode_datagram(std::span<const std::byte> in);

// The job that a datagram names, read before anything else of it.
Result<std::uint64_t> job_of(std::span<const std::byte> in);

}  // namespace sparsewire::wire
