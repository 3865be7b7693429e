// Checks who speaks before the slots hear of it.
#include "comm/job_slots.hpp"

#include <cstring>

#include "comm/datagram_place.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::comm {

proto::SlotPool JobSlots::pool_of(const wire::Topology& topology) const {
  return {.slots = kSlots,
          .workers = static_cast<std::uint16_t>(topology.world_size),
          .datagram_bytes = topology.datagram_bytes,
          .block = topology.block,
          .job = job_,
          .epoch = seal_.epoch};
}

std::size_t JobSlots::memory_needed(const wire::Topology& topology) const {
  return proto::SlotAggregator::memory_needed(pool_of(topology));
}

void JobSlots::begin(const wire::Topology& topology) {
  slots_ = std::make_unique<proto::SlotAggregator>(pool_of(topology));
}

void JobSlots::on_datagram(std::span<std::byte> data, const net::Address& from,
                           net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  const bool is_mine = datagram && datagram->header.epoch == seal_.epoch &&
                       datagram->header.worker < addresses_.size() && seal_.key->is_sealed(data);
  if (!is_mine) return void(++rejected_);
  const wire::DatagramHeader& header = datagram->header;
  if (header.kind == wire::DatagramKind::hello) return greet(header, data, from, socket);
  if (!slots_ || addresses_[header.worker] != from) return void(++rejected_);
  outbox_.clear();
  slots_->on_datagram(*datagram, outbox_);
  for (const auto& outgoing : outbox_) send(outgoing, socket);
}

// Where a worker's first greeting came from, there it stays: who copies one cannot take its place.
void JobSlots::greet(const wire::DatagramHeader& hello, std::span<std::byte> data,
                     const net::Address& from, net::UdpSocket& socket) {
  net::Address& address = addresses_[hello.worker];
  if (address == net::Address{}) address = from;
  const bool fits = data.size() <= socket.room().size() && socket.has_room();
  if (address != from || !fits) return void(++rejected_);
  wire::DatagramHeader welcome = hello;
  welcome.kind = wire::DatagramKind::welcome;
  const std::span<std::byte> out = socket.room().first(data.size());
  std::memset(out.data(), 0, out.size());
  wire::encode(welcome, {}, out);
  seal_.key->seal(out);
  socket.commit(out.size(), from);
}

// What finds no room is lost, and asked for again.
void JobSlots::send(const proto::SlotAggregator::Outgoing& outgoing, net::UdpSocket& socket) const {
  const std::size_t size = outgoing.datagram.size();
  if (!socket.has_room() || size > socket.room().size()) return;
  seal_.key->seal(outgoing.datagram);
  std::memcpy(socket.room().data(), outgoing.datagram.data(), size);
  if (outgoing.worker == proto::kEveryWorker) return socket.commit(size, addresses_);
  socket.commit(size, addresses_[outgoing.worker]);
}

proto::SlotAggregatorCounters JobSlots::counters() const {
  auto counters = slots_ ? slots_->counters() : proto::SlotAggregatorCounters{};
  counters.rejected += rejected_;
  return counters;
}

}  // namespace sparsewire::comm
