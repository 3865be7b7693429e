// Checks who speaks before the slots hear of it.
#include "comm/job_slots.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

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
  const bool is_here = header.worker < addresses_.size() && addresses_[header.worker] == from;
  if (!slots_ || !is_here) return void(++rejected_);
  slots_->on_datagram(*datagram, outbox_);
  send_all(socket);
}

void JobSlots::on_parent(std::span<std::byte> data, net::UdpSocket& socket) {
  const auto datagram = wire::decode_datagram(data);
  if (!slots_ || !is_mine(datagram, data, parent_->keys->down)) return void(++rejected_);
  if (datagram->header.kind == wire::DatagramKind::welcome) {
    return on_welcome(datagram->header, data.size(), socket);
  }
  slots_->on_parent(*datagram, outbox_);
  send_all(socket);
}

// --- Greetings ---

void JobSlots::greet(const wire::Datagram& hello, std::size_t size, const net::Address& from,
                     net::UdpSocket& socket) {
  const std::uint16_t worker = hello.header.worker;
  const auto greeting = wire::decode_greeting(hello);
  if (!greeting || !agrees(*greeting)) return void(++rejected_);
  if (!seats(worker, hello.header.round, from)) return void(++rejected_);
  if (!parent_) return answer(worker, size, socket);
  Greeter& greeter = greeters_[worker];
  greet_parent(size);
  if (size <= greeter.awaits) return;
  greeter.awaits = size;
  greeter.asked = said_;
}

// A worker is where its latest greeting came from, as its address may change on the way. Greetings
// are numbered, so an old one that somebody sends again moves nothing. Where a copy overtakes the
// greeting itself, that comes with the same number from where the worker was, and moves it back,
// once: from then on copies of it move nothing, either.
bool JobSlots::seats(std::uint16_t worker, std::uint64_t number, const net::Address& from) {
  Greeter& greeter = greeters_[worker];
  if (number > greeter.number) {
    const net::Address before = std::exchange(addresses_[worker], from);
    greeter.number = number;
    greeter.before = before == from ? net::Address{} : before;
    return true;
  }
  const bool was_overtaken =
      number != 0 && number == greeter.number && from == greeter.before && from != net::Address{};
  if (was_overtaken) addresses_[worker] = std::exchange(greeter.before, {});
  return was_overtaken;
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
  greeters_.resize(greeting.workers);
  return true;
}

// The way of a rack's workers ends at the root: each of their greetings is passed on, as long as it
// is, and answered with the parent's answer.
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

// A short one is no answer to a long greeting, which may come yet: it tells of a narrow path.
void JobSlots::on_welcome(const wire::DatagramHeader& welcome, std::size_t size,
                          net::UdpSocket& socket) {
  const bool is_mine = welcome.worker == greeting_->rack && welcome.round <= said_;
  bool is_awaited = false;
  for (std::uint16_t worker = 0; is_mine && worker < greeters_.size(); ++worker) {
    Greeter& greeter = greeters_[worker];
    if (greeter.awaits == 0 || welcome.round < greeter.asked) continue;
    is_awaited = true;
    parent_adds_ = welcome.dtype;
    answer(worker, std::min(greeter.awaits, size), socket);
    if (size >= greeter.awaits) greeter.awaits = 0;
  }
  if (!is_awaited) ++rejected_;
}

void JobSlots::answer(std::uint16_t worker, std::size_t size, net::UdpSocket& socket) const {
  say({.kind = wire::DatagramKind::welcome,
       .worker = worker,
       .columns = 0,
       .job = job_,
       .epoch = seal_.epoch,
       .dtype = parent_adds_,
       .round = greeters_[worker].number},
      *greeting_, size, seal_.keys->down, socket, addresses_[worker]);
}

// --- What goes ---

// What finds no room is lost and counted, and asked for again.
void JobSlots::say(const wire::DatagramHeader& header, const wire::Greeting& greeting,
                   std::size_t size, const wire::TagKey& key, net::UdpSocket& socket,
                   const net::Address& to) const {
  if (!socket.has_room() || size > socket.room().size()) return socket.drop(1);
  const std::span<std::byte> out = socket.room().first(size);
  wire::encode_greeting(header, greeting, out);
  key.seal(out);
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
  const bool is_up = outgoing.worker == proto::kParent;
  const bool is_for_all = outgoing.worker == proto::kEveryWorker;
  const bool has_room = socket.has_room() && size <= socket.room().size();
  if (!has_room) return socket.drop(is_for_all ? addresses_.size() : 1);
  (is_up ? parent_->keys->up : seal_.keys->down).seal(outgoing.datagram);
  std::memcpy(socket.room().data(), outgoing.datagram.data(), size);
  if (is_up) return socket.commit(size);
  if (is_for_all) return socket.commit(size, addresses_);
  socket.commit(size, addresses_[outgoing.worker]);
}

proto::SlotAggregatorCounters JobSlots::counters() const {
  auto counters = slots_ ? slots_->counters() : proto::SlotAggregatorCounters{};
  counters.rejected += rejected_;
  return counters;
}

}  // namespace sparsewire::comm
