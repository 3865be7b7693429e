// What is to be done on many connections of one thread: which of them have something to read or to
// write, and how much waits in all. They keep it themselves, so that nobody has to look at each.
#pragma once

#include <cstddef>

#include "base/index_set.hpp"

namespace sparsewire::net {

class Agenda {
 public:
  // Of connections with numbers below `size`, which are behind with more than `most_queued` bytes.
  Agenda(std::size_t size, std::size_t most_queued)
      : most_queued_(most_queued), to_read_(size), to_write_(size) {}

  const IndexSet& to_read() const { return to_read_; }
  const IndexSet& to_write() const { return to_write_; }
  // Bytes that wait to be sent; and whether some connection is behind with them.
  std::size_t queued() const { return queued_; }
  bool is_any_behind() const { return behind_ != 0; }

  // From a connection, once it has changed.
  void note(std::size_t number, bool reads, bool writes) {
    reads ? to_read_.insert(number) : to_read_.erase(number);
    writes ? to_write_.insert(number) : to_write_.erase(number);
  }
  void note_queued(std::size_t before, std::size_t now) {
    queued_ += now - before;
    if (before > most_queued_) --behind_;
    if (now > most_queued_) ++behind_;
  }

 private:
  const std::size_t most_queued_;
  IndexSet to_read_;
  IndexSet to_write_;
  std::size_t queued_ = 0;
  std::size_t behind_ = 0;  // connections
};

// A connection's place in an agenda, or in none.
struct AgendaEntry {
  Agenda* agenda = nullptr;
  std::size_t number = 0;
};

}  // namespace sparsewire::net
