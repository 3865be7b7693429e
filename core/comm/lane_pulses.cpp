// How a lane notices that a peer has stopped, and shows that it has not stopped itself. Lane 0 does
// it for the whole rank: a frozen process or a dead host silences all lanes alike.
#include "comm/link.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {

void Lane::check_pulses(Clock::time_point now) {
  if (!has_pulse()) return;
  const auto asleep = metronome_.tick(milliseconds_of(now));
  if (!asleep) return;
  for (const auto& link : links_) {
    if (!link || !link->connection.is_open()) continue;
    beat(link->connection, link->pulse);
    link->pulse.excuse(*asleep);
    if (!departed_.contains(link->rank())) listen(*link, milliseconds_of(now));
  }
}

bool Lane::has_pulse() const { return place_.lane == 0 && place_.topology.world_size > 1; }

void Lane::listen(Link& link, proto::Milliseconds now) {
  using State = proto::Pulse::State;
  const bool was_silent = link.pulse.state() == State::silent;
  const proto::Milliseconds silence = link.pulse.silence(now);
  const auto changed = link.pulse.listen(now, link.connection.bytes_received());
  if (!changed) return;
  if (*changed == State::lost) return lose_silent(link, silence);
  if (*changed == State::silent || was_silent) {
    listener_.peer_silent({name_of(link), link.rank(), silence, *changed == State::alive});
  }
}

// The peer is told, too, in case that it thaws one day.
void Lane::lose_silent(Link& link, proto::Milliseconds silence) {
  const std::string text = describe_silence(silence);
  const std::string who = "rank " + std::to_string(place_.rank);
  link.connection.drop_unsent();
  link.connection.send(wire::fault_message(
      wire::FrameKind::abort,
      {ErrorCode::peer_lost, link.rank(), who + " lost " + name_of(link) + ": " + text}));
  (void)link.connection.flush();
  lose(link, {ErrorCode::peer_lost, link.rank(), text});
}

// Workers see each other through their aggregators only.
Status Lane::on_silence(const wire::Message& message) {
  if (!place_.dedicated || message.header.chunk >= place_.topology.world_size) {
    return protocol_error("silence: not from an aggregator, or of a rank out of range");
  }
  const auto rank = static_cast<Rank>(message.header.chunk);
  const proto::Milliseconds lasted{message.header.seq};
  listener_.peer_silent({"rank " + std::to_string(rank), rank, lasted, lasted.count() == 0});
  return {};
}

std::vector<Rank> Lane::silent_ranks() const {
  std::vector<Rank> silent;
  for (const auto& link : links_) {
    const bool is_silent = link && link->pulse.state() == proto::Pulse::State::silent;
    if (is_silent && !place_.dedicated) silent.push_back(link->rank());
  }
  return silent;
}

std::string Lane::name_of(const Link& link) const {
  return place_.dedicated ? "aggregator " + link.connection.peer()
                          : "rank " + std::to_string(link.rank());
}

}  // namespace sparsewire::comm
