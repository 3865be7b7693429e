// What is left in a lane of groups that have ended: a bit each, so that their late frames are
// thrown away; and last words to peers that have not heard them.
#pragma once

#include <cstdint>
#include <map>

#include "base/index_set.hpp"
#include "comm/lanes/lane_channels.hpp"

namespace sparsewire::comm {

// Last words of a group, and the peers of the lane that have not been told.
struct Farewell {
  wire::Message words;
  IndexSet untold{0};

  // Queues the words, if the peer has not been told.
  void tell(PeerChannel& channel);
};

class Farewells {
 public:
  bool has_ended(std::uint32_t number) const;
  // Allocates the memory that the end of a group will take.
  void expect(std::uint32_t number) { ended_.try_emplace(word_of(number)); }
  void note_end(std::uint32_t number) { ended_[word_of(number)] |= bit_of(number); }

  // Leaves last words for peers, now if they are connected, or once they are.
  void leave(std::uint32_t number, Farewell farewell);
  // Leaves last words for peers that send frames of the group, if its members are not known.
  void leave_to_askers(std::uint32_t number, Farewell farewell);

  // A peer is connected, or about to be.
  void tell(PeerChannel& channel);
  // A peer has sent a frame of a group that has ended.
  void answer(PeerChannel& channel, std::uint32_t number);

 private:
  static std::uint32_t word_of(std::uint32_t number) { return number / 64; }
  static std::uint64_t bit_of(std::uint32_t number) { return std::uint64_t{1} << (number % 64); }

  std::map<std::uint32_t, std::uint64_t> ended_;  // numbers, 64 to a word
  std::map<std::uint32_t, Farewell> for_connected_;
  std::map<std::uint32_t, Farewell> for_askers_;
};

}  // namespace sparsewire::comm
