// Encodes, decodes and checks greetings.
#include "wire/greeting.hpp"

#include <algorithm>

#include "wire/layout.hpp"

namespace sparsewire::wire {
namespace {

// Racks have workers in them, and each of these is a rank or more.
bool can_be(const Greeting& greeting) {
  return greeting.workers >= 1 && greeting.workers <= greeting.world_size &&
         greeting.rack < greeting.racks && greeting.racks <= greeting.world_size &&
         greeting.world_size <= kMostRanks && greeting.datagram_bytes >= kMinDatagram &&
         greeting.datagram_bytes <= kMaxDatagram && greeting.flows >= 1 &&
         greeting.flows <= kMostFlows;
}

// The greeting must have passed can_be(): without flows this would divide by zero.
bool has_place(const DatagramHeader& header, const Greeting& greeting) {
  return header.worker < greeting.workers &&
         header.slot == first_slot_of(flow_of(header.slot, greeting.flows));
}

}  // namespace

void encode_greeting(const DatagramHeader& header, const Greeting& greeting,
                     std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  encode(header, {}, out);
  store_all(out.subspan<kDatagramHeaderBytes, kGreetingBytes>(), greeting.workers,
            greeting.world_size, greeting.rack, greeting.racks, greeting.datagram_bytes,
            greeting.flows);
}

Result<Greeting> decode_greeting(const Datagram& datagram) {
  if (!is_greeting(datagram.header.kind) || datagram.values.size() < kGreetingBytes) {
    return protocol_error("datagram: no greeting");
  }
  const auto [workers, world_size, rack, racks, datagram_bytes, flows] =
      load_all<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
               std::uint32_t>(datagram.values.first<kGreetingBytes>());
  const Greeting greeting{workers, world_size, rack, racks, datagram_bytes, flows};
  if (!can_be(greeting) || !has_place(datagram.header, greeting)) {
    return protocol_error("datagram: no such workers");
  }
  return greeting;
}

}  // namespace sparsewire::wire
