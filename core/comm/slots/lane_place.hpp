// A lane's place (its number, rank and hosts), and the calls by which it reports to its
// communicator.
#pragma once

#include <memory>

#include "comm/records/survey.hpp"
#include "comm/slots/datagram_place.hpp"
#include "proto/exchange/choice.hpp"
#include "proto/exchange/exchange_share.hpp"
#include "proto/stream/hosts.hpp"

namespace sparsewire::comm {

class Timeline;

struct LanePlace {
  wire::Topology topology;
  std::uint32_t lane;
  Rank rank;
  bool dedicated;  // owners are aggregators, and not the ranks
  proto::Hosts hosts{};
  std::shared_ptr<DatagramPlace> datagrams{};  // null if nothing goes by datagrams
  std::shared_ptr<Timeline> timeline{};        // null without a timeline

  bool is_self(std::uint32_t owner) const { return !dedicated && static_cast<Rank>(owner) == rank; }
  // The rank that takes this rank's messages for an owner: the owner's deputy on this host, or the
  // owner.
  std::uint32_t taker(std::uint32_t owner) const {
    return hosts.has_deputies(rank) ? static_cast<std::uint32_t>(hosts.speaker(rank, owner))
                                    : owner;
  }
  bool is_deputy(std::uint32_t owner) const {
    return hosts.has_deputies(rank) && hosts.speaker(rank, owner) == rank;
  }
  // Whether ranks join on this lane. It is the first one, if owners are colocated; all lanes carry
  // exchanges then.
  bool has_joins() const { return !dedicated && lane == 0; }
  std::string who() const { return "rank " + std::to_string(rank); }
};

// Called by the thread that has the lane's turn.
class LaneListener {
 public:
  virtual ~LaneListener() = default;

  // The lane is done with the operation, well or not, and does not touch its memory any more.
  virtual void operation_left(std::uint64_t seq) = 0;
  // This one operation cannot be done; others go on.
  virtual void operation_failed(std::uint64_t seq, Error error) = 0;
  // All ranks have joined the operation, and know its route. With an order, other lanes carry parts
  // of it, too.
  using Order = std::shared_ptr<const proto::ExchangeOrder>;
  virtual void operation_chosen(std::uint64_t seq, proto::Route route, const Order& order) = 0;
  // Nothing has come from a peer for a while, or it was heard again.
  virtual void peer_silent(const Silence& silence) = 0;
  // Datagrams do not pass well; `text` tells people.
  virtual void datagrams_troubled(const std::string& text) = 0;
  // Nothing can go on.
  virtual void broken(Error error) = 0;
};

}  // namespace sparsewire::comm
