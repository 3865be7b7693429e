// A pipe through memory that two processes of one host share. They are connected by a Unix socket,
// which hands over the memory, rings, and tells when the other process is gone: nothing has a name,
// so nothing is left behind.
#pragma once

#include "net/pipe.hpp"
#include "net/shm/ring.hpp"

namespace sparsewire::net {

// Memory of a file without a name, mapped.
class SharedRing {
 public:
  SharedRing() = default;
  ~SharedRing() { unmap(); }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // Makes one of so many bytes; the descriptor, which the peer is to get, is the caller's. Throws
  // std::system_error.
  int create(std::size_t size);
  // Maps a peer's. An error where it is not such memory.
  Status map(int fd);
  void unmap();
  // In a forked child, where the memory is not mapped.
  void disown() { memory_ = nullptr; }

  RingMemory* memory() const { return memory_; }
  std::size_t size() const { return size_; }  // bytes

 private:
  RingMemory* memory_ = nullptr;
  std::size_t size_ = 0;
};

class ShmPipe final : public Pipe {
 public:
  // Takes over a connected, non-blocking Unix socket of which the other end makes one, too; `ring`
  // is the size of the ring to it. Throws std::system_error where the system has no memory for it.
  explicit ShmPipe(int fd, std::size_t ring = kMaxRingBytes);
  ~ShmPipe() override { close(); }
  ShmPipe(const ShmPipe&) = delete;
  ShmPipe& operator=(const ShmPipe&) = delete;

  int fd() const override { return fd_; }
  Bell bell() const override { return Bell::shared; }
  const std::string& peer() const override { return peer_; }
  Result<std::size_t> write(std::span<const iovec> from) override;
  Result<std::size_t> read(std::span<const iovec> into) override;
  std::size_t undelivered() const override { return writer_.unread(); }
  void close() override;
  void disown() override;

 private:
  void hand_over(int memory);
  Status listen();
  Status take_over(int memory);
  void ring();

  int fd_;
  std::string peer_ = "this host";
  SharedRing to_peer_;
  SharedRing from_peer_;  // none until the peer has handed it over
  RingWriter writer_;
  RingReader reader_;
  bool is_peer_gone_ = false;
};

}  // namespace sparsewire::net
