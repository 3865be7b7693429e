// Which carrier a socket stands for.
#include "comm/channel.hpp"

#include <sys/socket.h>

#include "net/shm/shm_pipe.hpp"
#include "net/tcp/tcp_pipe.hpp"

namespace sparsewire::comm {

std::unique_ptr<net::Pipe> open_pipe(int fd, std::size_t ring) {
  int domain = 0;
  socklen_t size = sizeof domain;
  (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  if (domain == AF_UNIX) return std::make_unique<net::ShmPipe>(fd, ring);
  return std::make_unique<net::TcpPipe>(fd);
}

}  // namespace sparsewire::comm
