// Checks the sender of a datagram before the slots get it.
#include "comm/aggregators/job_slots.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/slots/datagram_place.hpp"

namespace sparsewire::comm {

proto::SlotPool JobSlots::pool(const wire::Greeting& greeting) const {
  return {.slots = kSlots,
          .workers = static_cast<std::uint16_t>(greeting.workers),
          .datagram_bytes = greeting.datagram_bytes,
          .job = job_,
          .epoch = seal_.epoch,
          .world_size = greeting.world_size};
}

// The number of workers is known with the first greeting: that of the ranks, or of racks, which are
// fewer.
std::size_t JobSlots::memory_needed(const wire::Topology& topology) const {
  return proto::SlotAggregator::memory_needed(pool({.workers = topology.world_size,
                                                    .world_size = topology.world_size,
                                                    .datagram_bytes = topology.datagram_bytes}));
}

void JobSlots::begin(const wire::Topology& topology) {
  const wire::Greeting flat{.workers = topology.world_size,
                            .world_size = topology.world_size,
                            .datagram_bytes = topology.datagram_bytes};
  if (!greeting_) settle(flat);
  greeting_->datagram_bytes = topology.datagram_bytes;
  begin(*greeting_);
}

void JobSlots::begin(const wire::Greeting& greeting) {
  std::optional<std::uint16_t> of_parent;
  if (parent_) of_parent = static_cast<std::uint16_t>(greeting.rack);
  slots_ = std::make_unique<proto::SlotAggregator>(pool(greeting), of_parent);
}

// --- What comes ---

bool JobSlots::is_mine(const Result<wire::Datagram>& datagram, std::span<const std::byte> data,
                       const wire::TagKey& key) const {
  return datagram && datagram->header.epoch == seal_.epoch && key.is_sealed(data);
}

void JobSlots::on_datagram(std::span<std::byte> data, const net::Address& from,
                           net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  if (!is_mine(datagram, data, seal_.keys->up)) return void(++rejected_);
  const wire::DatagramHeader& header = datagram->header;
  if (header.kind == wire::DatagramKind::hello) return greet(*datagram, data.size(), from, socket);
  if (!slots_ || !flows_.is_at(header.worker, header.slot, from)) return void(++rejected_);
  slots_->on_datagram(*datagram, outbox_);
  send_all(header.slot, socket);
}

void JobSlots::on_parent(std::span<std::byte> data, net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  if (!slots_ || !is_mine(datagram, data, parent_->keys->down)) return void(++rejected_);
  if (datagram->header.kind == wire::DatagramKind::welcome) {
    return on_welcome(datagram->header, data.size(), socket);
  }
  slots_->on_parent(*datagram, outbox_);
  send_all(datagram->header.slot, socket);
}

// --- Greetings ---

void JobSlots::greet(const wire::Datagram& hello, std::size_t size, const net::Address& from,
                     net::UdpSocket& socket) {
  const auto [worker, slot] = std::pair(hello.header.worker, hello.header.slot);
  const auto greeting = wire::decode_greeting(hello);
  if (!greeting || !agrees(*greeting)) return void(++rejected_);
  if (!flows_.take(worker, slot, hello.header.round, from)) return void(++rejected_);
  if (!parent_) return answer({worker, slot, size}, socket);
  greet_parent(size);
  flows_.wait({worker, slot, size}, said_);
}

bool JobSlots::agrees(const wire::Greeting& greeting) {
  if (greeting_) return greeting == *greeting_;
  const bool has_place = parent_ || greeting.racks == 1;
  if (!has_place || greeting.world_size != world_size_) return false;
  if (parent_) {
    if (!parent_->reserve(proto::SlotAggregator::memory_needed(pool(greeting)))) return false;
    begin(greeting);
  }
  settle(greeting);
  return true;
}

void JobSlots::settle(const wire::Greeting& greeting) {
  greeting_ = greeting;
  flows_ = WorkerFlows(greeting.workers, greeting.flows);
}

// The path of a rack's workers ends at the root: for each of their greetings, one of the same
// length goes to the parent, and the worker is answered when the parent has answered. One flow goes
// up, however many the workers have.
void JobSlots::greet_parent(std::size_t size) {
  say({.kind = wire::DatagramKind::hello,
       .worker = static_cast<std::uint16_t>(greeting_->rack),
       .columns = 0,
       .job = job_,
       .epoch = seal_.epoch,
       .round = ++said_},
      {.workers = greeting_->racks,
       .world_size = greeting_->world_size,
       .datagram_bytes = greeting_->datagram_bytes},
      size, parent_->keys->up, *parent_->socket, {});
}

void JobSlots::on_welcome(const wire::DatagramHeader& welcome, std::size_t size,
                          net::UdpSocket& socket) {
  const bool is_mine = welcome.worker == greeting_->rack && welcome.round <= said_;
  if (!is_mine) return void(++rejected_);
  const auto awaited = flows_.take_answered(welcome.round, size);
  if (awaited.empty()) return void(++rejected_);
  parent_adds_ = welcome.dtype;
  for (const auto& hello : awaited) answer(hello, socket);
}

void JobSlots::answer(const WorkerFlows::Waiting& hello, net::UdpSocket& socket) const {
  say({.kind = wire::DatagramKind::welcome,
       .worker = hello.worker,
       .slot = hello.slot,
       .columns = 0,
       .job = job_,
       .epoch = seal_.epoch,
       .dtype = parent_adds_,
       .round = flows_.number(hello.worker, hello.slot)},
      *greeting_, hello.bytes, seal_.keys->down, socket, flows_.of(hello.worker, hello.slot));
}

// --- What goes ---

// A greeting that finds no room is lost and counted, and comes again.
void JobSlots::say(const wire::DatagramHeader& header, const wire::Greeting& greeting,
                   std::size_t size, const wire::TagKey& key, net::UdpSocket& socket,
                   const net::Address& to) const {
  if (!socket.has_room() || size > socket.room().size()) return socket.drop(1);
  const std::span<std::byte> out = socket.room().first(size);
  wire::encode_greeting(header, greeting, out);
  key.seal(out);
  socket.commit(size, to);
}

// All answers to one datagram are of its slot.
void JobSlots::send_all(std::uint16_t slot, net::UdpSocket& socket) {
  for (const auto& outgoing : outbox_) {
    send(outgoing, slot, outgoing.worker == proto::kParent ? *parent_->socket : socket);
  }
  outbox_.clear();
}

void JobSlots::send(const proto::SlotAggregator::Outgoing& outgoing, std::uint16_t slot,
                    net::UdpSocket& socket) const {
  const std::size_t size = outgoing.datagram.size();
  const bool is_up = outgoing.worker == proto::kParent;
  const bool is_for_all = outgoing.worker == proto::kEveryWorker;
  const bool has_room = socket.has_room() && size <= socket.room().size();
  if (!has_room) return socket.drop(is_for_all ? flows_.workers() : 1);
  (is_up ? parent_->keys->up : seal_.keys->down).seal(outgoing.datagram);
  std::memcpy(socket.room().data(), outgoing.datagram.data(), size);
  if (is_up) return socket.commit(size);
  if (is_for_all) return socket.commit(size, flows_.of_all(slot));
  socket.commit(size, flows_.of(outgoing.worker, slot));
}

proto::SlotAggregatorCounters JobSlots::counters() const {
  auto counters = slots_ ? slots_->counters() : proto::SlotAggregatorCounters{};
  counters.rejected += rejected_;
  return counters;
}

}  // namespace sparsewire::comm
