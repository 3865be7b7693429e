// What a poller can watch: it is told when its descriptor may be read or written again.
#pragma once

#include <memory>

namespace sparsewire::net {

class Poller;

class Ready {
 public:
  // Has the poller tell of changes, until it is closed.
  virtual void watch(const std::shared_ptr<Poller>& poller) = 0;

  // The poller's notes: may it be read or written by now?
  virtual void note_ready(bool readable, bool writable) = 0;

 protected:
  ~Ready() = default;
};

}  // namespace sparsewire::net
