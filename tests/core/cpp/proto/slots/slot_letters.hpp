// Datagrams made by hand, for the rules of slots one by one.
#pragma once

#include <doctest/doctest.h>

#include "proto/slots/pool.hpp"
#include "random.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::test {

using proto::SlotPool;
using wire::ColumnRecord;
using wire::DatagramHeader;
using wire::DatagramKind;

inline constexpr std::uint16_t kBlock = 16;
inline const SlotPool kPool{.slots = 2,
                            .workers = 3,
                            .datagram_bytes = wire::datagram_head(1) + 4 * kBlock,
                            .block = kBlock,
                            .job = 5,
                            .epoch = 6};

// A datagram and the memory in which it lies.
struct Letter {
  Buffer bytes;

  wire::Datagram datagram() const {
    auto decoded = wire::decode_datagram(bytes);
    REQUIRE(decoded);
    return *decoded;
  }
  DatagramHeader header() const { return datagram().header; }
  ColumnRecord column() const { return datagram().columns[0]; }
  float value() const { return load<float>(datagram().values.data(), 0); }
};

inline Letter letter_of(const DatagramHeader& header, ColumnRecord column, float value) {
  Letter letter{Buffer(wire::datagram_head(header.columns) + header.values_bytes())};
  const ColumnRecord columns[wire::kMaxColumns] = {column};
  wire::encode(header, {columns, header.columns}, letter.bytes);
  for (std::size_t i = 0; header.present != 0 && i < kBlock; ++i) {
    store(letter.bytes.data() + wire::datagram_head(header.columns), i, value);
  }
  return letter;
}

}  // namespace sparsewire::test
