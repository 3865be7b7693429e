// Checks who speaks before the slots hear of it.
#include "comm/job_slots.hpp"

#include <algorithm>
#include <cstring>

#include "comm/datagram_place.hpp"

namespace sparsewire::comm {

proto::SlotPool JobSlots::pool(const wire::Greeting& greeting) const {
  return {.slots = kSlots,
          .workers = static_cast<std::uint16_t>(greeting.workers),
          .datagram_bytes = greeting.datagram_bytes,
          .job = job_,
          .epoch = seal_.epoch,
          .world_size = greeting.world_size};
}

// How many workers there are is known with the first greeting: each rank, or fewer of racks.
std::size_t JobSlots::memory_needed(const wire::Topology& topology) const {
  return proto::SlotAggregator::memory_needed(pool({.workers = topology.world_size,
                                                    .world_size = topology.world_size,
                                                    .datagram_bytes = topology.datagram_bytes}));
}

void JobSlots::begin(const wire::Topology& topology) {
  const wire::Greeting flat{.workers = topology.world_size,
                            .world_size = topology.world_size,
                            .datagram_bytes = topology.datagram_bytes};
  if (!greeting_) greeting_ = flat;
  greeting_->datagram_bytes = topology.datagram_bytes;
  begin(*greeting_);
}

void JobSlots::begin(const wire::Greeting& greeting) {
  std::optional<std::uint16_t> of_parent;
  if (parent_) of_parent = static_cast<std::uint16_t>(greeting.rack);
  slots_ = std::make_unique<proto::SlotAggregator>(pool(greeting), of_parent);
}

// --- What comes ---

bool JobSlots::is_mine(const Result<wire::Datagram>& datagram,
                       std::span<const std::byte> data) const {
  return datagram && datagram->header.epoch == seal_.epoch && seal_.key->is_sealed(data);
}

void JobSlots::on_datagram(std::span<std::byte> data, const net::Address& from,
                           net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  if (!is_mine(datagram, data)) return void(++rejected_);
  const wire::DatagramHeader& header = datagram->header;
  if (header.kind == wire::DatagramKind::hello) return greet(*datagram, data.size(), from, socket);
  const bool is_here = header.worker < addresses_.size() && addresses_[header.worker] == from;
  if (!slots_ || !is_here) return void(++rejected_);
  slots_->on_datagram(*datagram, outbox_);
  send_all(socket);
}

void JobSlots::on_parent(std::span<std::byte> data, net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  if (!slots_ || !is_mine(datagram, data)) return void(++rejected_);
  if (datagram->header.kind == wire::DatagramKind::welcome) {
    return on_welcome(datagram->header, data.size());
  }
  slots_->on_parent(*datagram, outbox_);
  send_all(socket);
}

// --- Greetings ---

// Where a worker's first greeting came from, there it stays: who copies one cannot take its place.
void JobSlots::greet(const wire::Datagram& hello, std::size_t size, const net::Address& from,
                     net::UdpSocket& socket) {
  const auto greeting = wire::decode_greeting(hello);
  if (!greeting || !agrees(*greeting)) return void(++rejected_);
  net::Address& address = addresses_[hello.header.worker];
  if (address == net::Address{}) address = from;
  if (address != from) return void(++rejected_);
  if (parent_ && size > way_up_) return greet_parent(size);
  wire::DatagramHeader welcome = hello.header;
  welcome.kind = wire::DatagramKind::welcome;
  welcome.dtype = parent_adds_;
  say(welcome, *greeting, size, socket, from);
}

bool JobSlots::agrees(const wire::Greeting& greeting) {
  if (greeting_) return greeting == *greeting_;
  const bool has_place = parent_ || greeting.racks == 1;
  if (!has_place || greeting.world_size != addresses_.size()) return false;
  if (parent_) {
    if (!parent_->reserve(proto::SlotAggregator::memory_needed(pool(greeting)))) return false;
    begin(greeting);
  }
  greeting_ = greeting;
  addresses_.resize(greeting.workers);
  return true;
}

// The way of a rack's workers ends at the root: they are not answered before the root has answered
// a greeting as long as theirs, and repeat it until then.
void JobSlots::greet_parent(std::size_t size) const {
  say({.kind = wire::DatagramKind::hello,
       .worker = static_cast<std::uint16_t>(greeting_->rack),
       .columns = 0,
       .job = job_,
       .epoch = seal_.epoch},
      {.workers = greeting_->racks,
       .world_size = greeting_->world_size,
       .datagram_bytes = greeting_->datagram_bytes},
      size, *parent_->socket, {});
}

void JobSlots::on_welcome(const wire::DatagramHeader& welcome, std::size_t size) {
  if (welcome.worker != greeting_->rack) return void(++rejected_);
  way_up_ = std::max(way_up_, size);
  parent_adds_ = welcome.dtype;
}

// --- What goes ---

// What finds no room is lost, and asked for again.
void JobSlots::say(const wire::DatagramHeader& header, const wire::Greeting& greeting,
                   std::size_t size, net::UdpSocket& socket, const net::Address& to) const {
  if (!socket.has_room() || size > socket.room().size()) return;
  const std::span<std::byte> out = socket.room().first(size);
  wire::encode_greeting(header, greeting, out);
  seal_.key->seal(out);
  socket.commit(size, to);
}

void JobSlots::send_all(net::UdpSocket& socket) {
  for (const auto& outgoing : outbox_) {
    send(outgoing, outgoing.worker == proto::kParent ? *parent_->socket : socket);
  }
  outbox_.clear();
}

void JobSlots::send(const proto::SlotAggregator::Outgoing& outgoing, net::UdpSocket& socket) const {
  const std::size_t size = outgoing.datagram.size();
  if (!socket.has_room() || size > socket.room().size()) return;
  seal_.key->seal(outgoing.datagram);
  std::memcpy(socket.room().data(), outgoing.datagram.data(), size);
  if (outgoing.worker == proto::kParent) return socket.commit(size);
  if (outgoing.worker == proto::kEveryWorker) return socket.commit(size, addresses_);
  socket.commit(size, addresses_[outgoing.worker]);
}

proto::SlotAggregatorCounters JobSlots::counters() const {
  auto counters = slots_ ? slots_->counters() : proto::SlotAggregatorCounters{};
  counters.rejected += rejected_;
  return counters;
}

}  // namespace sparsewire::comm
