// Keeps parts that come early in the order in which they came.
#include "proto/exchange/exchange_share.hpp"

#include <utility>

namespace sparsewire::proto {

Status ExchangeShare::on_part(Rank from, const wire::Message& message, Outgoings& out) {
  // If older parts still wait, this one must wait, too.
  if (!exchange_ || !early_.empty()) {
    early_.push_back({from, {message.header, message.payload.owned()}});
    return {};
  }
  return exchange_->on_part(from, message.header, message.payload.owned(), out);
}

Result<bool> ExchangeShare::get_on(Outgoings& out) {
  for (const Early& early : std::exchange(early_, {})) {
    const auto& [header, payload] = early.message;
    if (Status error = exchange_->on_part(early.from, header, payload, out)) {
      return *std::move(error);
    }
  }
  return exchange_->start_next(out);
}

}  // namespace sparsewire::proto
