// Pipes inside one process, from end to end, over all that carries them.
#pragma once

#include <memory>

#include "net/shm/shm_pipe.hpp"
#include "net/tcp/tcp_pipe.hpp"
#include "sockets.hpp"

namespace sparsewire::test {

struct PipePair {
  std::unique_ptr<net::Pipe> a;
  std::unique_ptr<net::Pipe> b;
};

template <typename Pipe>
PipePair pipes_over(SocketPair sockets) {
  return {std::make_unique<Pipe>(sockets.a.release()), std::make_unique<Pipe>(sockets.b.release())};
}

// What carries the pipes of a test. Over a local socket, what is written is there at once.
struct OverTcp {
  static PipePair pair() { return pipes_over<net::TcpPipe>(connected_pair()); }
};
struct OverSocket {
  static PipePair pair() { return pipes_over<net::TcpPipe>(local_pair()); }
};
struct OverMemory {
  static PipePair pair() { return pipes_over<net::ShmPipe>(local_pair()); }
};

}  // namespace sparsewire::test
