// Encodes and decodes datagrams.
#include "wire/datagram.hpp"

#include "wire/layout.hpp"

namespace sparsewire::wire {
namespace {

constexpr std::size_t kJobOffset = 8;
constexpr std::uint8_t kKindCount = 7;

Status check(const DatagramHeader& header, std::size_t size) {
  if (is_greeting(header.kind)) {
    if (header.columns != 0) return protocol_error("datagram: a greeting has no columns");
    return {};
  }
  if (header.columns == 0 || header.columns > kMaxColumns) {
    return protocol_error("datagram: so many columns cannot be");
  }
  if (header.present >> header.columns != 0) {
    return protocol_error("datagram: it has a block of no column");
  }
  if (header.block < kMinBlock || header.block > kMaxBlock) {
    return protocol_error("datagram: block out of range");
  }
  if (size != datagram_head(header.columns) + header.values_bytes()) {
    return protocol_error("datagram: wrong size");
  }
  return {};
}

}  // namespace

std::size_t encode(const DatagramHeader& header, std::span<const ColumnRecord> columns,
                   std::span<std::byte> out) {
  store_all(out.first<kDatagramHeaderBytes>(), kDatagramVersion, header.kind, header.worker,
            header.slot, header.columns, header.present, header.job, header.epoch, header.dtype,
            header.op, header.block, header.round, std::uint64_t{0});
  std::byte* at = out.data() + kDatagramHeaderBytes;
  for (const ColumnRecord& column : columns) {
    store_all(std::span<std::byte, kColumnBytes>(at, kColumnBytes), column.next, column.exponent,
              std::uint8_t{0}, std::uint16_t{0});
    at += kColumnBytes;
  }
  return datagram_head(header.columns) + header.values_bytes();
}

Result<Datagram> decode_datagram(std::span<const std::byte> in) {
  if (in.size() < kDatagramHeaderBytes) return protocol_error("datagram: too short");
  const auto [version, kind, worker, slot, columns, present, job, epoch, dtype, op, block, round,
              tag] =
      load_all<std::uint8_t, std::uint8_t, std::uint16_t, std::uint16_t, std::uint8_t, std::uint8_t,
               std::uint64_t, std::uint32_t, std::uint8_t, std::uint8_t, std::uint16_t,
               std::uint64_t, std::uint64_t>(in.first<kDatagramHeaderBytes>());
  if (version != kDatagramVersion) return protocol_error("datagram: another version");
  if (kind == 0 || kind >= kKindCount || dtype >= kDTypeCount || op >= kReduceOpCount) {
    return protocol_error("datagram: unknown value");
  }
  Datagram datagram{.header = {.kind = static_cast<DatagramKind>(kind),
                               .worker = worker,
                               .slot = slot,
                               .columns = columns,
                               .present = present,
                               .job = job,
                               .epoch = epoch,
                               .dtype = static_cast<DType>(dtype),
                               .op = static_cast<ReduceOp>(op),
                               .block = block,
                               .round = round},
                    .columns = {},
                    .values = {}};
  if (Status error = check(datagram.header, in.size())) return *std::move(error);
  for (std::size_t column = 0; column < columns; ++column) {
    const std::byte* at = in.data() + datagram_head(column);
    datagram.columns[column] = {load<std::uint32_t>(at), load<std::uint8_t>(at + 4)};
  }
  datagram.values = in.subspan(datagram_head(columns));
  return datagram;
}

Result<std::uint64_t> job_of(std::span<const std::byte> in) {
  if (in.size() < kDatagramHeaderBytes || load<std::uint8_t>(in.data()) != kDatagramVersion) {
    return protocol_error("datagram: too short, or of another version");
  }
  return load<std::uint64_t>(in.data() + kJobOffset);
}

}  // namespace sparsewire::wire
