// What there is to do on the connections of one thread: which of them have something to read or to
// write, and how much waits in all. Connections enter this themselves, so that no turn looks at
// each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index_set.hpp"

namespace sparsewire::net {

// Bytes that may wait to be sent before a connection is behind.
struct QueueLimits {
  std::size_t each;  // on one connection
  std::size_t all;
};

class Agenda {
 public:
  // For connections with numbers below `size`.
  Agenda(std::size_t size, const QueueLimits& limits)
      : limits_(limits), to_read_(size), to_write_(size), queued_on_(size) {}

  const IndexSet& to_read() const { return to_read_; }
  const IndexSet& to_write() const { return to_write_; }
  // Bytes that wait to be sent.
  std::size_t queued() const { return queued_; }
  // Whether one of these connections is behind: more waits there than is left for all. So
  // connections that stand still share the memory, and leave as much as each of them has, whatever
  // is sent to others.
  bool is_any_behind(std::span<const std::uint32_t> numbers) const {
    const std::size_t most = std::min(limits_.each, limits_.all - std::min(limits_.all, queued_));
    if (queued_ <= most) return false;
    return std::ranges::any_of(
        numbers, [this, most](std::uint32_t number) { return queued_on_[number] > most; });
  }

  // Called by a connection once it has changed.
  void note(std::size_t number, bool reads, bool writes) {
    reads ? to_read_.insert(number) : to_read_.erase(number);
    writes ? to_write_.insert(number) : to_write_.erase(number);
  }
  void note_queued(std::size_t number, std::size_t bytes) {
    queued_ += bytes - queued_on_[number];
    queued_on_[number] = bytes;
  }

 private:
  const QueueLimits limits_;
  IndexSet to_read_;
  IndexSet to_write_;
  std::size_t queued_ = 0;
  std::vector<std::size_t> queued_on_;  // each connection
};

// A connection's place in an agenda, or in none.
struct AgendaEntry {
  Agenda* agenda = nullptr;
  std::size_t number = 0;
};

}  // namespace sparsewire::net
