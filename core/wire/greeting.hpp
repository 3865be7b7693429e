// What greetings say after their headers: how many workers and ranks take part, at this aggregator
// and above it, and how many flows each worker has.
#pragma once

#include "wire/datagram.hpp"

namespace sparsewire::wire {

// Byte layout, little endian: workers u32, world_size u32, rack u32, racks u32, datagram_bytes u32,
// flows u32.
struct Greeting {
  std::uint32_t workers = 1;         // at the aggregator that is greeted: ranks, or racks
  std::uint32_t world_size = 1;      // ranks of the job
  std::uint32_t rack = 0;            // which of the parent's workers the aggregator is
  std::uint32_t racks = 1;           // the parent's workers; without a parent 1, and rack is 0
  std::uint32_t datagram_bytes = 0;  // of the job's largest datagram
  std::uint32_t flows = 1;           // of each worker to the aggregator that is greeted

  bool operator==(const Greeting&) const = default;
};
inline constexpr std::size_t kGreetingBytes = 24;

inline constexpr std::uint32_t kMostRanks = UINT16_MAX - 2;
inline constexpr std::uint32_t kMostFlows = 8;

// Slots are dealt out to flows in runs: datagrams of neighbouring slots leave in one message, and a
// message belongs to one flow.
inline constexpr std::uint16_t kSlotsInRun = 8;
constexpr std::uint16_t flow_of(std::uint16_t slot, std::uint32_t flows) {
  return static_cast<std::uint16_t>(slot / kSlotsInRun % flows);
}
// The slot that stands for a flow in a greeting.
constexpr std::uint16_t first_slot_of(std::uint16_t flow) {
  return static_cast<std::uint16_t>(flow * kSlotsInRun);
}

// Greetings have a number in the field of the round, larger than the number before. Its remainder
// modulo kProbes says what a hello finds out.
inline constexpr std::uint32_t kProbes = 4;
inline constexpr std::uint32_t kFullProbe = 0;     // whether datagrams of full size pass
inline constexpr std::uint32_t kProcessProbe = 2;  // whether the process hears them
inline constexpr std::uint32_t kNarrowProbe = 3;   // whether short ones pass
inline constexpr std::uint32_t kMinDatagram = 576;
inline constexpr std::uint32_t kMaxDatagram = 8972;

// Writes header, greeting and zeros over all of `out`; the tag is zero.
void encode_greeting(const DatagramHeader& header, const Greeting& greeting,
                     std::span<std::byte> out);

// An error for a datagram that is no greeting, or a greeting that cannot be.
Result<Greeting> decode_greeting(const Datagram& datagram);

}  // namespace sparsewire::wire
