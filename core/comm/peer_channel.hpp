// A lane's channel to one peer: connected once there is something to say to it, or to hear from it.
#pragma once

#include "base/transitions.hpp"
#include "comm/channel.hpp"

namespace sparsewire::comm {

enum class Dial : std::uint8_t {
  absent,    // nobody has needed it yet
  dialling,  // asked for: what is sent waits in its connection
  connected,
  lost,  // for ever
};

enum class DialStep : std::uint8_t { ask, adopt, lose };

inline constexpr Transition<Dial, DialStep> kDialTransitions[] = {
    {Dial::absent, DialStep::ask, Dial::dialling},
    {Dial::absent, DialStep::adopt, Dial::connected},
    {Dial::dialling, DialStep::adopt, Dial::connected},
    {Dial::absent, DialStep::lose, Dial::lost},
    {Dial::dialling, DialStep::lose, Dial::lost},
    {Dial::connected, DialStep::lose, Dial::lost},
};

class PeerChannel;

// Takes the frames of all channels of a lane.
class FrameTaker {
 public:
  virtual ~FrameTaker() = default;
  virtual bool is_ready_for(const wire::FrameHeader& header) = 0;
  virtual Status accepts(const PeerChannel& from, const wire::FrameHeader& header) = 0;
  virtual std::byte* place(const PeerChannel& from, const wire::FrameHeader& header) = 0;
  virtual Status on_message(PeerChannel& from, wire::Message message) = 0;
  // Something is to be said to a peer, or heard from it, that is not connected.
  virtual void on_asked(PeerChannel& channel) = 0;
};

class PeerChannel final : public Channel {
 public:
  // `rank` is kNoRank for an aggregator.
  PeerChannel(std::uint32_t peer, Rank rank, std::shared_ptr<net::Staging> staging,
              net::Agenda& agenda, FrameTaker& taker)
      : Channel(rank, std::move(staging), {&agenda, peer}), peer(peer), taker_(taker) {}

  Dial dial() const { return dial_; }
  void move(DialStep step) { dial_ = next_state(kDialTransitions, dial_, step); }

  bool is_ready_for(const wire::FrameHeader& header) override {
    return taker_.is_ready_for(header);
  }
  Status accepts(const wire::FrameHeader& header) override { return taker_.accepts(*this, header); }
  std::byte* place(const wire::FrameHeader& header) override { return taker_.place(*this, header); }
  Status on_message(wire::Message message) override {
    return taker_.on_message(*this, std::move(message));
  }

  const std::uint32_t peer;

 private:
  FrameTaker& taker_;
  Dial dial_ = Dial::absent;
};

}  // namespace sparsewire::comm
