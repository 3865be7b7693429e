// Sends the greetings of one flow, and takes their answers.
#include "comm/slots/slot_flow.hpp"

#include <algorithm>

#include "wire/greeting.hpp"

namespace sparsewire::comm {
namespace {

// All flows together have as much room as one alone.
constexpr std::size_t kMostQueued = 1024;

net::UdpOptions options_of(const LanePlace& place) {
  return {.datagram_bytes = place.topology.datagram_bytes,
          .most_queued = kMostQueued / place.datagrams->flows(),
          .most_segments = place.datagrams->most_in_message(),
          .disturbance = place.datagrams->disturbance};
}

// Bytes of a datagram that must pass both ways.
std::size_t full_size(const LanePlace& place) {
  const std::size_t block = place.datagrams->block;
  if (block == 0) return place.topology.datagram_bytes;
  return wire::datagram_head(1) + block * element_size(DType::int32);
}

}  // namespace

SlotFlow::SlotFlow(const LanePlace& place, std::uint32_t owner, std::uint16_t number, int fd)
    : place_(place),
      keys_(place.datagrams->keys[owner]),
      number_(number),
      port_(net::own_port(fd)),
      patience_(proto::Milliseconds{place.topology.peer_timeout_ms}),
      socket_(fd, options_of(place)),
      path_(patience_, full_size(place), place.datagrams->greeted) {}

void SlotFlow::on_result(proto::Microseconds now) {
  path_.on_result(now);
  error_.clear();
}

void SlotFlow::on_greeting(const wire::DatagramHeader& header, std::size_t bytes,
                           proto::Microseconds now) {
  if (header.kind == wire::DatagramKind::welcome) {
    path_.on_welcome(header.round, bytes, now);
  } else if (header.kind == wire::DatagramKind::noted) {
    path_.on_noted(header.round, bytes);
  }
}

// If there is no room, nothing is asked, so that the silence tells nothing about the path.
void SlotFlow::ask(bool awaits_results, proto::Microseconds now) {
  path_.await(awaits_results, now);
  if (!socket_.has_room()) return;
  if (const auto hello = path_.ask(now)) greet(*hello);
}

void SlotFlow::greet(const proto::SlotPath::Hello& hello) {
  const DatagramPlace& datagrams = *place_.datagrams;
  const std::span<std::byte> out = socket_.room().first(hello.bytes);
  const bool is_full = hello.number % wire::kProbes == wire::kFullProbe;
  wire::encode_greeting({.kind = wire::DatagramKind::hello,
                         .worker = datagrams.worker,
                         .slot = wire::first_slot_of(number_),
                         .columns = 0,
                         .job = datagrams.job,
                         .epoch = datagrams.epoch,
                         .block = is_full ? datagrams.block : std::uint16_t{0},
                         .round = hello.number},
                        datagrams.greeting(place_.topology), out);
  keys_.up.seal(out);
  socket_.commit(hello.bytes);
}

std::error_code SlotFlow::flush(proto::Microseconds now) {
  socket_.flush(now);
  const std::error_code error = socket_.take_error();
  if (error) error_ = error;
  return error;
}

std::optional<proto::Microseconds> SlotFlow::next_due() const {
  const auto of_socket = socket_.next_due();
  const auto of_path = socket_.has_room() ? path_.next_due() : std::nullopt;
  return of_socket && of_path ? std::min(*of_socket, *of_path) : of_socket ? of_socket : of_path;
}

}  // namespace sparsewire::comm
