// Connected sockets on their way to the connections that take them over: what nobody takes over is
// closed.
#pragma once

#include <unistd.h>

#include <span>
#include <utility>
#include <vector>

namespace sparsewire::net {

class Sockets {
 public:
  // By lane and peer; -1 where there is none.
  Sockets(std::vector<std::vector<int>> sockets) : sockets_(std::move(sockets)) {}
  Sockets(Sockets&&) = default;
  Sockets& operator=(Sockets&&) = delete;
  ~Sockets() {
    for (const auto& lane : sockets_) {
      for (const int fd : lane) {
        if (fd >= 0) ::close(fd);
      }
    }
  }

  std::size_t lanes() const { return sockets_.size(); }
  std::size_t peers() const { return sockets_.empty() ? 0 : sockets_.front().size(); }

  // Whoever takes a socket over leaves -1 in its place.
  std::span<int> of_lane(std::size_t lane) { return sockets_[lane]; }

 private:
  std::vector<std::vector<int>> sockets_;
};

}  // namespace sparsewire::net
