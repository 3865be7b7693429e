// Datagrams that wait to be sent, each in memory once, however many it goes to; by destination, so
// that those for one leave together.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "net/udp/address.hpp"

namespace sparsewire::net {

class Outbox {
 public:
  // Room for `most` datagrams of up to `datagram_bytes`.
  Outbox(std::size_t datagram_bytes, std::size_t most);

  bool empty() const { return waiting_.empty(); }
  bool is_full() const { return free_.size() == 1; }

  // Memory for the next datagram; the same until it is put in.
  std::span<std::byte> room() { return {cell(free_.back()), datagram_bytes_}; }

  // Puts in what was written to the room; not where it is full.
  void put(std::size_t size, std::span<const Address> to);

 private:
  struct Datagram {
    std::uint32_t cell;
    std::uint32_t size;
  };
  struct Line {
    const Address* to;
    std::vector<Datagram> datagrams;
    std::size_t sent = 0;
  };

  std::byte* cell(std::uint32_t index) const { return memory_.get() + index * datagram_bytes_; }

  const std::size_t datagram_bytes_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::uint32_t> free_;  // cells; the last is the room
  std::vector<std::uint32_t> uses_;  // of each cell, by datagrams that wait
  std::unordered_map<Address, Line, AddressHash> lines_;
  std::deque<Line*> waiting_;
};

}  // namespace sparsewire::net
