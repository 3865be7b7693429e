// One lane's share of an exchange. Parts that come before it has begun wait.
#pragma once

#include "proto/exchange/exchange.hpp"

namespace sparsewire::proto {

// What a lane needs to carry parts of an exchange, once all ranks agree on it. The tensor and the
// sinks must stay until all lanes have ended or dropped the exchange.
struct ExchangeOrder {
  PartPlan plan;
  SparseTensor tensor;
  std::vector<PartSink*> sinks;  // one for each list of results; several lanes use them at once
  Costs costs;
};

class ExchangeShare {
 public:
  void begin(const ExchangeOrder& order, LaneShare lane) {
    exchange_ =
        std::make_unique<Exchange>(order.plan, order.tensor, order.sinks, order.costs, lane);
  }
  bool has_begun() const { return exchange_ != nullptr; }
  bool finished() const { return exchange_ && early_.empty() && exchange_->finished(); }
  std::vector<Rank> missing() const {
    return exchange_ ? exchange_->missing() : std::vector<Rank>{};
  }

  Status on_part(Rank from, const wire::Message& message, Outgoings& out);
  // Takes the parts that have waited, and starts the next one. False if none is to be started.
  Result<bool> get_on(Outgoings& out);

 private:
  struct Early {
    Rank from;
    wire::Message message;
  };

  std::vector<Early> early_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace sparsewire::proto
