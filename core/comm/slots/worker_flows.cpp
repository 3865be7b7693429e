// Tells greetings that move a flow to another address from copies.
#include "comm/slots/worker_flows.hpp"

#include <algorithm>
#include <utility>

#include "wire/greeting.hpp"

namespace sparsewire::comm {

std::size_t WorkerFlows::place(std::uint16_t worker, std::uint16_t slot) const {
  return std::size_t{wire::flow_of(slot, flows_)} * workers_ + worker;
}

bool WorkerFlows::is_at(std::uint16_t worker, std::uint16_t slot, const net::Address& from) const {
  return worker < workers_ && addresses_[place(worker, slot)] == from;
}

const net::Address& WorkerFlows::of(std::uint16_t worker, std::uint16_t slot) const {
  return addresses_[place(worker, slot)];
}

std::span<const net::Address> WorkerFlows::of_all(std::uint16_t slot) const {
  return std::span(addresses_).subspan(place(0, slot), workers_);
}

// A flow is at the address that its latest greeting came from, as addresses may change on the way.
// Greetings are numbered, so an old one that is sent again moves nothing. If a copy overtakes the
// greeting itself, the greeting comes with the same number from the flow's former address, and
// moves the flow back, once. From then on its copies move nothing, either.
bool WorkerFlows::take(std::uint16_t worker, std::uint16_t slot, std::uint64_t number,
                       const net::Address& from) {
  net::Address& address = addresses_[place(worker, slot)];
  Greeter& greeter = greeters_[place(worker, slot)];
  if (number > greeter.number) {
    const net::Address before = std::exchange(address, from);
    greeter.number = number;
    greeter.before = before == from ? net::Address{} : before;
    return true;
  }
  const bool was_overtaken =
      number != 0 && number == greeter.number && from == greeter.before && from != net::Address{};
  if (was_overtaken) address = std::exchange(greeter.before, {});
  return was_overtaken;
}

std::uint64_t WorkerFlows::number(std::uint16_t worker, std::uint16_t slot) const {
  return greeters_[place(worker, slot)].number;
}

void WorkerFlows::wait(const Waiting& greeting, std::uint64_t asked) {
  Greeter& greeter = greeters_[place(greeting.worker, greeting.slot)];
  if (greeting.bytes <= greeter.waits) return;
  greeter.waits = greeting.bytes;
  greeter.asked = asked;
}

std::vector<WorkerFlows::Waiting> WorkerFlows::take_answered(std::uint64_t number,
                                                             std::size_t bytes) {
  std::vector<Waiting> taken;
  for (std::size_t place = 0; place < greeters_.size(); ++place) {
    Greeter& greeter = greeters_[place];
    if (greeter.waits == 0 || number < greeter.asked) continue;
    taken.push_back({static_cast<std::uint16_t>(place % workers_),
                     wire::first_slot_of(static_cast<std::uint16_t>(place / workers_)),
                     std::min(greeter.waits, bytes)});
    if (bytes >= greeter.waits) greeter.waits = 0;
  }
  return taken;
}

}  // namespace sparsewire::comm
