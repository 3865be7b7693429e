// Bytes in order to one peer and back. The folders below have the carriers: a TCP connection, and
// memory that two processes share.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/error.hpp"

namespace sparsewire::net {

// What to wait for on a pipe's descriptor before the next attempt to write.
enum class Bell : std::uint8_t {
  own,     // that the descriptor is writable
  shared,  // that it is readable: the peer rings when there is something to read, or room to write
};

class Pipe {
 public:
  virtual ~Pipe() = default;

  // The descriptor for an edge-triggered poller; -1 once the pipe is closed.
  virtual int fd() const = 0;
  virtual Bell bell() const { return Bell::own; }

  // The other end's address, as "host:port" if it has one; also after close().
  virtual const std::string& peer() const = 0;

  // Write from and read into these one after another, and return how many bytes moved: 0 if that
  // has to wait. An error (peer_lost) means that the peer is gone; all that the peer has written
  // can be read before it comes.
  virtual Result<std::size_t> write(std::span<const iovec> from) = 0;
  virtual Result<std::size_t> read(std::span<const iovec> into) = 0;

  // Whether the bell has rung since the last call. Then the other direction may go on, if it had to
  // wait.
  virtual bool heard_bell() { return false; }

  // To be called now and then: retries what the system has refused so far. An error if it refuses
  // for good.
  virtual Status settle() { return {}; }

  // Bytes of those written that have not reached the peer's side yet.
  virtual std::size_t undelivered() const = 0;

  // Gives the peer up if its host answers nothing for so long.
  virtual void expect_answers_within(std::chrono::milliseconds) {}
  // The way there drops packets; messages have to come through soon all the same.
  virtual void expect_losses() {}

  virtual void close() = 0;
  // In a forked child: lets go of this process's copy. The peer notices nothing.
  virtual void disown() = 0;
};

inline Error peer_gone(const char* doing, const char* why) {
  return {ErrorCode::peer_lost, kNoRank, std::string(doing) + ": " + why};
}

}  // namespace sparsewire::net
