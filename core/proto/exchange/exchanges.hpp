// The exchanges of a lane on which ranks do not join: its shares of exchanges that the first lane's
// Peer has started.
#pragma once

#include <optional>
#include <set>

#include "proto/exchange/exchange_share.hpp"

namespace sparsewire::proto {

class Exchanges {
 public:
  explicit Exchanges(LaneShare lane) : lane_(lane) {}

  // Called once for an operation, unless it was dropped.
  void begin(std::uint64_t seq, const ExchangeOrder& order);

  // Takes a part frame, perhaps of an operation that has not begun here. An error means that the
  // rank broke the protocol.
  Status on_part(Rank from, const wire::Message& message, Outgoings& out);

  // Gets on with the oldest operation that can go on, and sets `ended` if one has ended. False if
  // there is nothing to do.
  Result<bool> poll(Outgoings& out, std::optional<std::uint64_t>& ended);
  bool has_work() const { return has_work_; }

  // Forgets an operation that has failed, and its late frames.
  void drop(std::uint64_t seq);

  // The ranks that an operation waits for.
  std::vector<Rank> missing(std::uint64_t seq) const;

 private:
  LaneShare lane_;
  std::map<std::uint64_t, ExchangeShare> shares_;
  std::set<std::uint64_t> dropped_;  // the latest
  bool has_work_ = false;
};

}  // namespace sparsewire::proto
