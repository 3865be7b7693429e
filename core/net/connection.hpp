// A connection: over one pipe, a queue of messages to send, and a reader that cuts what arrives
// into frames. It reads headers only; the handler knows what frames mean.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/transitions.hpp"
#include "net/agenda.hpp"
#include "net/pipe.hpp"
#include "net/poller.hpp"
#include "net/ready.hpp"
#include "net/staging.hpp"
#include "wire/frame.hpp"

namespace sparsewire::net {

// Takes the frames that come on connections. `from` is a connection's number in its agenda, or 0.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;

  // Whether to receive a large frame, asked with its header alone and before any memory is found
  // for it. An error ends the reading.
  virtual Status accepts(std::uint32_t from, const wire::FrameHeader& header) = 0;

  // The memory to receive this payload into, or null to have the connection find some.
  virtual std::byte* place(std::uint32_t from, const wire::FrameHeader& header) = 0;

  // Whether a frame can be taken by now. If not, the reading waits before it until resume().
  virtual bool is_ready_for(const wire::FrameHeader&) { return true; }

  // Takes one whole frame. A borrowed payload is valid during the call only. An error ends the
  // reading.
  virtual Status on_message(std::uint32_t from, wire::Message message) = 0;
};

// Whether a connection can send. Until it has a pipe, it keeps its messages.
enum class Standing : std::uint8_t { awaited, open, closed };

enum class StandingStep : std::uint8_t { attach, close };

inline constexpr Transition<Standing, StandingStep> kStandingTransitions[] = {
    {Standing::awaited, StandingStep::attach, Standing::open},
    {Standing::awaited, StandingStep::close, Standing::closed},
    {Standing::open, StandingStep::close, Standing::closed},
    {Standing::closed, StandingStep::close, Standing::closed},
};

// What a connection is reading.
enum class Reading : std::uint8_t {
  frames,   // whole frames, as they come
  payload,  // a large payload, straight to its place
  held,     // frames are staged that this turn may not hand out any more
  waiting,  // for the handler to be ready for the frame that is staged first
  ignored,  // nothing any more: all input is thrown away
};

enum class ReadingStep : std::uint8_t {
  begin_payload,
  end_payload,
  end_turn,
  begin_turn,
  wait,
  resume,
  ignore
};

inline constexpr Transition<Reading, ReadingStep> kReadingTransitions[] = {
    {Reading::frames, ReadingStep::begin_payload, Reading::payload},
    {Reading::payload, ReadingStep::end_payload, Reading::frames},
    {Reading::frames, ReadingStep::end_turn, Reading::held},
    {Reading::held, ReadingStep::begin_turn, Reading::frames},
    {Reading::frames, ReadingStep::wait, Reading::waiting},
    {Reading::waiting, ReadingStep::resume, Reading::held},
    {Reading::frames, ReadingStep::ignore, Reading::ignored},
    {Reading::payload, ReadingStep::ignore, Reading::ignored},
    {Reading::held, ReadingStep::ignore, Reading::ignored},
    {Reading::waiting, ReadingStep::ignore, Reading::ignored},
};

class Connection final : public Ready {
 public:
  // Without a pipe it keeps its messages until it gets one. The agenda must outlive it.
  explicit Connection(std::unique_ptr<Pipe> pipe = nullptr,
                      std::shared_ptr<Staging> staging = std::make_shared<Staging>(),
                      AgendaEntry entry = {});
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Pipe& pipe() const { return *pipe_; }
  void attach(std::unique_ptr<Pipe> pipe) {
    pipe_ = std::move(pipe);
    move(StandingStep::attach);
    keep_agenda();
  }
  // The other end's address, also after close(), once there is a pipe.
  const std::string& peer() const { return pipe_->peer(); }
  bool is_open() const { return standing_ == Standing::open; }
  bool is_closed() const { return standing_ == Standing::closed; }
  void close();

  void expect_answers_within(std::chrono::milliseconds patience) {
    pipe_->expect_answers_within(patience);
  }
  void expect_losses() { pipe_->expect_losses(); }

  // See Pipe.
  Status settle() { return is_open() ? pipe_->settle() : Status{}; }

  // In a forked child: lets go of this process's copy. The peer notices nothing.
  void disown() {
    if (pipe_) pipe_->disown();
    move(StandingStep::close);
  }

  void watch(const std::shared_ptr<Poller>& poller) override;

  // Queues; flush() sends. A borrowed payload must stay valid until it is sent or detached.
  void send(wire::Message message);

  // Writes what the pipe takes. An error means that the peer is gone.
  Status flush();

  // Reads, up to a budget, and hands out frames. An error means that the peer is gone (peer_lost)
  // or talks nonsense (protocol).
  Status receive(FrameHandler& handler);

  // Hands nothing out any more, and goes on reading for a while: a close while the peer still sends
  // would reset the connection, and the peer would lose what it has not read yet.
  void ignore_input();

  // Lets go of all memory that belongs to others, in frames of the group. Queued payloads are
  // copied, and a payload that is being received goes on in memory of our own.
  void detach(std::uint32_t group = 0);

  // Forgets queued frames of the group, but for the rest of a frame that is half sent.
  void drop_unsent(std::uint32_t group = 0);

  void note_ready(bool readable, bool writable) override;
  Reading reading() const { return reading_; }
  bool is_readable() const {
    return (readable_ && reading_ != Reading::waiting) || reading_ == Reading::held;
  }
  // Has the connection ask the handler again about the frame that it was not ready for.
  void resume() {
    if (reading_ == Reading::waiting) move(ReadingStep::resume);
    keep_agenda();
  }
  bool has_output() const { return !queue_.empty(); }
  bool is_writable() const { return is_open() && writable_ && has_output(); }
  std::size_t queued_bytes() const { return queued_bytes_; }
  std::size_t queued_bytes(std::uint32_t group) const;
  // Size of the payload that is being received, if it is not in the handler's memory.
  std::size_t incoming_bytes() const { return incoming_.owner ? incoming_.header.payload : 0; }

  // Bytes of those queued or sent that have not reached the peer's side yet.
  std::size_t undelivered_bytes() const;
  // The same of the first `bytes_sent` bytes.
  std::size_t undelivered_of(std::uint64_t bytes_sent) const;

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Outgoing {
    std::array<std::byte, wire::kHeaderBytes> header;
    Bytes payload;
    std::uint32_t group;
    std::size_t size() const { return header.size() + payload.size(); }
  };
  struct Incoming {
    wire::FrameHeader header;
    std::byte* memory = nullptr;
    std::shared_ptr<std::byte[]> owner;  // null if the memory is the handler's
    std::size_t filled = 0;
    std::size_t missing() const { return header.payload - filled; }
  };

  void keep_agenda();
  void move(StandingStep step) { standing_ = next_state(kStandingTransitions, standing_, step); }
  void move(ReadingStep step) { reading_ = next_state(kReadingTransitions, reading_, step); }
  std::size_t gather(std::span<iovec> out) const;
  Status write_some();
  void drop_sent(std::size_t bytes);
  template <typename Counts>
  std::size_t queued_where(Counts&& counts) const;
  Status receive_frames(FrameHandler& handler);
  Result<std::size_t> read_some();
  Status ignore_staged();
  Status consume_staging(FrameHandler& handler);
  Status begin_large(const wire::FrameHeader& header, FrameHandler& handler);
  Status finish_large(FrameHandler& handler);
  std::span<const std::byte> staged() const;

  std::uint32_t number() const { return static_cast<std::uint32_t>(entry_.number); }

  AgendaEntry entry_;
  std::unique_ptr<Pipe> pipe_;
  std::weak_ptr<Poller> poller_;
  Standing standing_;
  bool readable_ = false;
  bool writable_ = true;

  std::deque<Outgoing> queue_;
  std::size_t sent_of_front_ = 0;
  std::size_t queued_bytes_ = 0;

  std::shared_ptr<Staging> lender_;
  Staging::Buffer staging_;  // while something is staged, or being read
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  int frames_due_ = 0;  // how many this turn may still hand out
  Reading reading_ = Reading::frames;
  Incoming incoming_;        // while a payload is being read
  std::size_t ignored_ = 0;  // bytes

  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

// Connected sockets on their way to the connections that take them over. Sockets that no connection
// takes over are closed.
class Sockets {
 public:
  // By lane and peer; -1: there is none.
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

  // A caller that takes a socket over leaves -1 in its place.
  std::span<int> of_lane(std::size_t lane) { return sockets_[lane]; }

 private:
  std::vector<std::vector<int>> sockets_;
};

}  // namespace sparsewire::net
