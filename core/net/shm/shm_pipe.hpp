// A pipe through memory that two processes of one host share. A Unix socket connects them: it hands
// over the memory, rings the bell, and tells when the other process is gone. Nothing has a name, so
// nothing is left behind.
#pragma once

#include <chrono>
#include <utility>

#include "net/pipe.hpp"
#include "net/shm/ring.hpp"

namespace sparsewire::net {

// A ring in the mapped memory of a file without a name.
class SharedRing {
 public:
  SharedRing() = default;
  ~SharedRing() { unmap(); }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // Makes a ring of `size` bytes. The caller owns the returned descriptor, which the peer is to
  // get. Throws std::system_error.
  int create(std::size_t size);
  // Maps a peer's ring. An error if the descriptor is no such memory.
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
  // Takes over a connected, non-blocking Unix socket, whose other end becomes a ShmPipe, too.
  // `ring` is the size of the ring to the peer. Throws std::system_error if the system has no
  // memory for it.
  explicit ShmPipe(int fd, std::size_t ring = kMaxRingBytes);
  ~ShmPipe() override { close(); }
  ShmPipe(const ShmPipe&) = delete;
  ShmPipe& operator=(const ShmPipe&) = delete;

  int fd() const override { return fd_; }
  Bell bell() const override { return Bell::shared; }
  const std::string& peer() const override { return peer_; }
  Result<std::size_t> write(std::span<const iovec> from) override;
  Result<std::size_t> read(std::span<const iovec> into) override;
  bool heard_bell() override { return std::exchange(heard_bell_, false); }
  // Hands the memory over, if that was refused before.
  Status settle() override;
  // The system may refuse the memory for half of that time. So the peer, which hears nothing
  // meanwhile, does not give up first.
  void expect_answers_within(std::chrono::milliseconds patience) override {
    patience_ = patience / 2;
  }
  std::size_t undelivered() const override { return writer_.unread(); }
  void close() override;
  void disown() override;

 private:
  int hand_over();
  void let_go_of_memory();
  Status listen();
  Status take_over(int memory, bool has_more);
  void ring();

  int fd_;
  std::string peer_ = "this host";
  SharedRing to_peer_;
  int memory_;       // the descriptor of that ring; -1 once the peer has it
  int refusal_ = 0;  // why it does not have it
  std::chrono::steady_clock::time_point since_;
  std::chrono::milliseconds patience_{15'000};
  SharedRing from_peer_;  // none until the peer has handed it over
  RingWriter writer_;
  RingReader reader_;
  bool is_peer_gone_ = false;
  bool heard_bell_ = false;
};

}  // namespace sparsewire::net
