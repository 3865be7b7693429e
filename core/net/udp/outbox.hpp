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

// What the system cuts into datagrams, at most.
inline constexpr std::size_t kMostSegments = 64;
inline constexpr std::size_t kMostSegmentedBytes = 64'000;

class Outbox {
 public:
  // Room for `most` datagrams of up to `datagram_bytes`.
  Outbox(std::size_t datagram_bytes, std::size_t most);
  ~Outbox();

  bool empty() const { return waiting_.empty(); }
  bool is_full() const { return free_.size() == 1; }

  // Memory for the next datagram; the same until it is put in.
  std::span<std::byte> room() { return {cell(free_.back()), datagram_bytes_}; }

  // Puts in what was written to the room, of 1 byte or more, for each of these; not where it is
  // full. Where memory is refused, it is in for the first ones of them.
  void put(std::size_t size, std::span<const Address> to);

  // What waits first, as messages for one system call; until the next call of put(). Each has
  // datagrams for one destination: up to `most_segments` of one size, but for a smaller last one.
  std::span<mmsghdr> gather(std::size_t most_segments);
  // What is in one of them.
  struct Load {
    std::size_t datagrams;
    std::size_t bytes;
  };
  Load load(std::size_t message) const;
  // Forgets the first ones of what was gathered, once.
  void drop(std::size_t messages);
  // Has another destination come first, so that none waits for the end of what another one gets.
  void yield();
  void clear();

 private:
  struct Datagram {
    std::uint32_t cell;
    std::uint32_t size;
  };
  struct Line {
    SystemAddress to;
    std::vector<Datagram> datagrams;
    std::size_t sent = 0;

    std::span<const Datagram> rest() const { return std::span(datagrams).subspan(sent); }
    void forget(std::size_t count);
  };
  struct Batch;

  std::byte* cell(std::uint32_t index) const { return memory_.get() + index * datagram_bytes_; }
  Line& line_to(const Address& to);
  void append(Line& line, Datagram datagram);
  void release(std::uint32_t cell);
  bool gather_line(Line& line, std::size_t most_segments);

  const std::size_t datagram_bytes_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::uint32_t> free_;  // cells; the last is the room
  std::vector<std::uint32_t> uses_;  // of each cell, by datagrams that wait
  std::unordered_map<Address, Line, AddressHash> lines_;
  std::deque<Line*> waiting_;
  std::unique_ptr<Batch> batch_;
};

}  // namespace sparsewire::net
