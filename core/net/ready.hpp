// The interface of objects that a poller watches: they are told when their descriptor may be read
// or written again.
#pragma once

#include <memory>

namespace sparsewire::net {

class Poller;

class Ready {
 public:
  // Has the poller report changes to this object, until this object is closed.
  virtual void watch(const std::shared_ptr<Poller>& poller) = 0;

  // Called by the poller: the descriptor may be read or written by now.
  virtual void note_ready(bool readable, bool writable) = 0;

 protected:
  ~Ready() = default;
};

}  // namespace sparsewire::net
