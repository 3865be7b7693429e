// Runs shares of exchanges, the oldest first.
#include "proto/exchange/exchanges.hpp"

namespace sparsewire::proto {
namespace {

// More operations than ever have parts on their way at once.
constexpr std::size_t kDroppedKept = 1024;

}  // namespace

void Exchanges::begin(std::uint64_t seq, const ExchangeOrder& order) {
  shares_[seq].begin(order, lane_);
  has_work_ = true;
}

Status Exchanges::on_part(Rank from, const wire::Message& message, Outgoings& out) {
  const std::uint64_t seq = message.header.seq;
  if (dropped_.contains(seq)) return {};
  has_work_ = true;
  return shares_[seq].on_part(from, message, out);
}

Result<bool> Exchanges::poll(Outgoings& out, std::optional<std::uint64_t>& ended) {
  for (auto& [seq, share] : shares_) {
    if (!share.has_begun()) continue;
    const auto started = share.get_on(out);
    if (!started) return started.error();
    if (share.finished()) {
      ended = seq;
      shares_.erase(seq);
      return true;
    }
    if (*started) return true;
  }
  has_work_ = false;
  return false;
}

void Exchanges::drop(std::uint64_t seq) {
  shares_.erase(seq);
  dropped_.insert(seq);
  if (dropped_.size() > kDroppedKept) dropped_.erase(dropped_.begin());
}

std::vector<Rank> Exchanges::missing(std::uint64_t seq) const {
  const auto at = shares_.find(seq);
  return at == shares_.end() ? std::vector<Rank>{} : at->second.missing();
}

}  // namespace sparsewire::proto
