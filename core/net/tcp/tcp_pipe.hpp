// A pipe over a connected TCP socket.
#pragma once

#include "net/pipe.hpp"

namespace sparsewire::net {

class TcpPipe final : public Pipe {
 public:
  // Takes over a connected, non-blocking socket.
  explicit TcpPipe(int fd);
  ~TcpPipe() override { close(); }
  TcpPipe(const TcpPipe&) = delete;
  TcpPipe& operator=(const TcpPipe&) = delete;

  int fd() const override { return fd_; }
  const std::string& peer() const override { return peer_; }
  Result<std::size_t> write(std::span<const iovec> from) override;
  Result<std::size_t> read(std::span<const iovec> into) override;
  std::size_t undelivered() const override;
  void expect_answers_within(std::chrono::milliseconds patience) override;
  void expect_losses() override { ends_apart_ = true; }
  void close() override;
  void disown() override;

 private:
  Result<std::size_t> send(std::span<const iovec> from);

  int fd_;
  std::string peer_;
  bool ends_apart_ = false;  // The last byte of a small message goes in a packet of its own.
};

}  // namespace sparsewire::net
