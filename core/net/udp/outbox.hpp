// Datagrams that wait to be sent, by destination, so that those for one destination leave together.
// A datagram is in memory once, however many destinations it has.
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

// The most that the system cuts into datagrams.
inline constexpr std::size_t kMostSegments = 64;
inline constexpr std::size_t kMostSegmentedBytes = 64'000;

class Outbox {
 public:
  // Room for `most` datagrams of up to `datagram_bytes`.
  Outbox(std::size_t datagram_bytes, std::size_t most);
  ~Outbox();

  bool empty() const { return waiting_.empty(); }
  bool is_full() const { return free_.size() == 1; }

  // Memory for the next datagram; the same memory until put().
  std::span<std::byte> room() { return {cell(free_.back()), datagram_bytes_}; }

  // Queues what was written to the room, 1 byte or more, for each of these destinations. The outbox
  // must not be full. If memory is refused, it is queued for the first ones only.
  void put(std::size_t size, std::span<const Address> to);

  // The first datagrams that wait, as messages for one system call; valid until the next put(). A
  // message has datagrams for one destination: up to `most_segments` of one size, the last perhaps
  // smaller.
  std::span<mmsghdr> gather(std::size_t most_segments);
  // The content of one message.
  struct Load {
    std::size_t datagrams;
    std::size_t bytes;
  };
  Load load(std::size_t message) const;
  // Forgets the first messages that were gathered; once for each gather().
  void drop(std::size_t messages);
  // Has another destination come first, so that none waits until another one has got everything.
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
