// Tells peers last words, and forgets the words once every peer has been told.
#include "comm/lanes/farewells.hpp"

#include <utility>

namespace sparsewire::comm {

void Farewell::tell(PeerChannel& channel) {
  if (!untold.contains(channel.peer)) return;
  channel.connection.send(words);
  untold.erase(channel.peer);
}

bool Farewells::has_ended(std::uint32_t number) const {
  const auto word = ended_.find(word_of(number));
  return word != ended_.end() && (word->second & bit_of(number)) != 0;
}

void Farewells::leave(std::uint32_t number, Farewell farewell) {
  if (!farewell.untold.empty()) for_connected_.insert_or_assign(number, std::move(farewell));
}

void Farewells::leave_to_askers(std::uint32_t number, Farewell farewell) {
  for_askers_.insert_or_assign(number, std::move(farewell));
}

void Farewells::tell(PeerChannel& channel) {
  for (auto& [number, farewell] : for_connected_) farewell.tell(channel);
  std::erase_if(for_connected_, [](const auto& left) { return left.second.untold.empty(); });
}

void Farewells::answer(PeerChannel& channel, std::uint32_t number) {
  const auto left = for_askers_.find(number);
  if (left == for_askers_.end()) return;
  left->second.tell(channel);
  if (left->second.untold.empty()) for_askers_.erase(left);
}

}  // namespace sparsewire::comm
