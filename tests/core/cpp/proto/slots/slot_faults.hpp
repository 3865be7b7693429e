// What befalls datagrams in the network of slots: faults of links, and strangers.
#pragma once

#include <doctest/doctest.h>

#include "proto/slots/pool.hpp"
#include "random.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::test {

// Shares of the datagrams on a link, each way.
struct Faults {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;  // arrive later than others that were sent after them
  double corruption = 0;
  double strangers = 0;  // after so many there is one that makes no sense
};

// One that is rightly sealed, and that nobody can be waiting for.
inline Buffer stranger(const proto::SlotPool& pool, const Buffer& model, wire::DatagramKind kind,
                       Random& random) {
  const auto datagram = wire::decode_datagram(model);
  wire::DatagramHeader header = datagram->header;
  switch (below(6, random)) {
    case 0:
      header.kind = kind;
      break;
    case 1:
      header.slot = static_cast<std::uint16_t>(pool.slots + below(9, random));
      break;
    case 2:
      header.worker = static_cast<std::uint16_t>(pool.workers + below(9, random));
      header.kind = wire::DatagramKind::contribution;
      break;
    case 3:
      header.round += pick({1ull << 32, -(1ull << 32), 1ull << 63, 1000ull, ~1000ull}, random);
      break;
    case 4:
      header.job ^= 1 + below(1000, random);
      break;
    default:
      header.epoch += 1 + static_cast<std::uint32_t>(below(3, random));
  }
  Buffer strange = model;
  wire::encode(header, {datagram->columns, header.columns}, strange);
  return strange;
}

}  // namespace sparsewire::test
