// Opens a socket's pipe, and flushes a connection.
#include "comm/progress/channel.hpp"

#include <sys/socket.h>

#include "net/shm/shm_pipe.hpp"
#include "net/tcp/tcp_pipe.hpp"

namespace sparsewire::comm {
namespace {

// More than a socket and a ring hold. A peer that goes on sending after that says no last words.
constexpr int kLastTurns = 64;

}  // namespace

std::unique_ptr<net::Pipe> open_pipe(int fd, std::size_t ring) {
  int domain = 0;
  socklen_t size = sizeof domain;
  (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  if (domain == AF_UNIX) return std::make_unique<net::ShmPipe>(fd, ring);
  return std::make_unique<net::TcpPipe>(fd);
}

Status flush(net::Connection& connection, net::FrameHandler& handler) {
  Status error = connection.flush();
  if (!error) return {};
  connection.note_ready(true, false);
  for (int turn = 0; turn < kLastTurns && connection.is_readable(); ++turn) {
    if (connection.receive(handler)) break;
  }
  return error;
}

}  // namespace sparsewire::comm
