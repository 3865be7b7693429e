// What greetings say behind their headers: how many take part, here and above, and by how many
// flows each worker sends.
#pragma once

#include "wire/datagram.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: workers u32, world_size u32, rack u32, racks u32, datagram_bytes u32,
// flows u32.
struct Greeting {
  std::uint32_t workers = 1;         // at the aggregator that is greeted: ranks, or racks
  std::uint32_t world_size = 1;      // ranks of the job
  std::uint32_t rack = 0;            // which of the parent's workers that aggregator is
  std::uint32_t racks = 1;           // the parent's workers; 1 and rack 0 where there is none
  std::uint32_t datagram_bytes = 0;  // the most that one of the job has
  std::uint32_t flows = 1;           // of each worker to the aggregator that is greeted

  bool operator==(const Greeting&) const = default;
};
inline constexpr std::size_t kGreetingBytes = 24;

inline constexpr std::uint32_t kMostRanks = UINT16_MAX - 2;
inline constexpr std::uint32_t kMostFlows = 8;

// Slots are dealt out to flows in runs: datagrams of neighbours leave together, and one message has
// those of one flow.
inline constexpr std::uint16_t kSlotsInRun = 8;
constexpr std::uint16_t flow_of(std::uint16_t slot, std::uint32_t flows) {
  return static_cast<std::uint16_t>(slot / kSlotsInRun % flows);
}
// What stands for a flow in a greeting.
constexpr std::uint16_t first_slot_of(std::uint16_t flow) {
  return static_cast<std::uint16_t>(flow * kSlotsInRun);
}

// Greetings are numbered, in the field of the round: each number is larger than the one before. Its
// rest by kProbes says what a hello finds out.
inline constexpr std::uint32_t kProbes = 4;
inline constexpr std::uint32_t kFullProbe = 0;     // whether datagrams of full size pass
inline constexpr std::uint32_t kProcessProbe = 2;  // whether the process hears them
inline constexpr std::uint32_t kNarrowProbe = 3;   // whether short ones pass
inline constexpr std::uint32_t kMinDatagram = 576;
inline constexpr std::uint32_t kMaxDatagram = 8972;

// Writes header, greeting and zeros over all of `out`; the tag is zero.
void encode_greeting(const DatagramHeader& header, const Greeting& greeting,
                     std::span<std::byte> out);

// An error for what is no greeting, or cannot be.
Result<Greeting> decode_greeting(const Datagram& datagram);

}  // namespace sparsewire::wire
