// Numbers hosts by their first rank, and ranks inside each.
#include "proto/stream/hosts.hpp"

#include <map>
#include <numeric>

namespace sparsewire::proto {

Hosts::Hosts(std::vector<std::uint32_t> host_of) : host_of_(std::move(host_of)) {
  std::map<std::uint32_t, std::uint32_t> number;
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    const auto next = static_cast<std::uint32_t>(number.size());
    const std::uint32_t host = number.try_emplace(host_of_[rank], next).first->second;
    if (host == ranks_.size()) ranks_.emplace_back();
    host_of_[rank] = host;
    place_of_.push_back(static_cast<std::uint32_t>(ranks_[host].size()));
    ranks_[host].push_back(static_cast<Rank>(rank));
  }
  if (ranks_.size() == 1 || ranks_.size() == host_of_.size()) ranks_.clear();
}

Rank Hosts::speaker(Rank rank, std::uint32_t owner) const {
  if (!has_deputies(rank)) return rank;
  const std::vector<Rank>& beside = ranks_beside(rank);
  return beside[place_of_[owner] % beside.size()];
}

std::vector<Rank> Hosts::speakers(std::uint32_t owner, std::uint32_t world_size) const {
  std::vector<Rank> speakers(is_flat() ? world_size : ranks_.size());
  std::iota(speakers.begin(), speakers.end(), 0);
  for (std::size_t host = 0; host < ranks_.size(); ++host) {
    speakers[host] = speaker(ranks_[host].front(), owner);
  }
  return speakers;
}

}  // namespace sparsewire::proto
