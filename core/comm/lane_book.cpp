// Finds who is to blame where an operation does not end.
#include "comm/lane_book.hpp"

#include <algorithm>

#include "comm/lane_protocol.hpp"

namespace sparsewire::comm {
namespace {

// How long a rank that cannot tell who is late waits for a peer that can; and for an answer, where
// it asks, for which it looks this often.
constexpr std::chrono::milliseconds kTimeoutGrace{250};
constexpr std::chrono::milliseconds kAnswerGrace{2000};
constexpr std::chrono::milliseconds kAnswerLook{10};

// "1, 2, 3"
template <typename Items, typename NameOf>
std::string list_of(const Items& items, NameOf&& name_of) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + name_of(item);
  return text;
}

}  // namespace

void LaneBook::add(std::shared_ptr<Operation> operation) {
  next_deadline_ = std::min(next_deadline_, operation->arguments().deadline);
  const std::uint64_t seq = operation->seq();
  operations_.emplace(seq, std::move(operation));
}

Status LaneBook::abandoned() const {
  if (operations_.empty()) return {};
  const std::uint64_t newest = operations_.rbegin()->first;
  for (const auto& [rank, issued] : departed_) {
    if (newest < issued) continue;
    return Error{ErrorCode::peer_lost, rank,
                 "rank " + std::to_string(rank) + " closed its communicator while others went on"};
  }
  return {};
}

Status LaneBook::overdue(Clock::time_point now, LaneProtocol& protocol) {
  if (now < next_deadline_) return {};
  next_deadline_ = Clock::time_point::max();
  for (const auto& [seq, operation] : operations_) {
    auto due = operation->arguments().deadline;
    if (due <= now) {
      const Late late = late_for(seq, protocol);
      const bool asks = late.ranks.empty() && ask_who_is_late(seq, protocol);
      due += asks ? kAnswerGrace : grace_of(seq, protocol);
      if (!late.ranks.empty() || due <= now) return timeout_error(seq, late, protocol);
      if (asks) due = now + kAnswerLook;
    }
    next_deadline_ = std::min(next_deadline_, due);
  }
  return {};
}

// Whoever waits for a host hears from it first, and is heard itself by those that know nothing.
Clock::duration LaneBook::grace_of(std::uint64_t seq, const LaneProtocol& protocol) const {
  const bool may_hear = !place_.hosts.is_flat() && protocol.late_hosts(seq).empty();
  return may_hear ? 2 * kTimeoutGrace : kTimeoutGrace;
}

LaneBook::Late LaneBook::late_for(std::uint64_t seq, const LaneProtocol& protocol) const {
  // Whoever owns a chunk may itself wait for a frozen rank to read.
  Late late{seq, peers_.silent()};
  if (!late.ranks.empty()) return late;
  late.ranks = protocol.missing(seq);
  // What no owner has to answer for waits for its turn.
  const bool has_its_turn = !late.ranks.empty() || !protocol.waiting_for(seq).empty();
  for (auto at = operations_.begin(); !has_its_turn && at->first < seq; ++at) {
    late = {at->first, protocol.missing(at->first)};
    if (!late.ranks.empty()) break;
  }
  return late;
}

Awaited LaneBook::awaited(std::uint64_t seq, const LaneProtocol& protocol) const {
  Awaited awaited{late_for(seq, protocol).ranks};
  std::erase(awaited.ranks, place_.rank);
  if (awaited.ranks.empty()) awaited.ranks = protocol.late_hosts(seq);
  if (!awaited.ranks.empty()) return awaited;
  for (const std::uint32_t owner : protocol.waiting_for(seq)) {
    if (place_.dedicated) {
      awaited.aggregators.push_back(peers_.address_of(owner));
      continue;
    }
    const std::uint32_t taker = place_.is_deputy(owner) ? owner : place_.taker(owner);
    if (!place_.is_self(taker)) awaited.ranks.push_back(static_cast<Rank>(taker));
  }
  std::ranges::sort(awaited.ranks);
  awaited.ranks.erase(std::ranges::unique(awaited.ranks).begin(), awaited.ranks.end());
  return awaited;
}

std::map<std::uint64_t, Awaited> LaneBook::all_awaited(std::size_t most,
                                                       const LaneProtocol& protocol) const {
  std::map<std::uint64_t, Awaited> all;
  for (auto at = operations_.begin(); at != operations_.end() && all.size() < most; ++at) {
    all.emplace(at->first, awaited(at->first, protocol));
  }
  return all;
}

// Of the operation, or of the first that others must join before it.
bool LaneBook::ask_who_is_late(std::uint64_t seq, LaneProtocol& protocol) const {
  for (auto at = operations_.begin(); at != operations_.end() && at->first <= seq; ++at) {
    if (protocol.ask(at->first)) return true;
  }
  return false;
}

Error LaneBook::timeout_error(std::uint64_t seq, const Late& late,
                              const LaneProtocol& protocol) const {
  const std::string text = place_.who() + " gave up waiting: ";
  const auto number_of = [](Rank rank) { return std::to_string(rank); };
  if (!late.ranks.empty()) {
    const std::string where = late.seq == seq ? "" : ", in a collective that must come first";
    const std::string ranks = list_of(late.ranks, number_of);
    return {ErrorCode::timeout, late.ranks.front(),
            text + "nothing more came from rank(s) " + ranks + where};
  }
  if (const auto hosts = protocol.late_hosts(seq); !hosts.empty()) {
    return {ErrorCode::timeout, hosts.front(),
            text + "nothing more came from the host(s) of rank(s) " + list_of(hosts, number_of)};
  }
  const auto waiting_for = protocol.waiting_for(seq);
  if (waiting_for.empty()) {
    return {ErrorCode::timeout, kNoRank, text + "some rank is late, and nobody answered which"};
  }
  const std::string owners = list_of(waiting_for, [&](std::uint32_t owner) {
    return place_.dedicated ? peers_.address_of(owner) : std::to_string(owner);
  });
  const char* const kind = place_.dedicated ? "aggregator(s) " : "rank(s) ";
  return {ErrorCode::timeout, kNoRank, text + "no result came from " + kind + owners};
}

}  // namespace sparsewire::comm
