// Finds the ranks to blame if an operation does not end.
#include "comm/lanes/lane_waits.hpp"

#include <algorithm>

#include "comm/lanes/lane_protocol.hpp"

namespace sparsewire::comm {
namespace {

// How long a rank that cannot tell which rank is late waits for a peer that can; how long it waits
// for an answer, if it asks; and how often it looks for one.
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

Status LaneWaits::overdue(Clock::time_point now) {
  if (now < book_.next_deadline()) return {};
  book_.forget_deadlines();
  for (const auto& [seq, operation] : book_.operations()) {
    auto due = operation->arguments().deadline;
    if (due <= now) {
      const Late late = late_for(seq);
      const bool asks = late.ranks.empty() && ask_who_is_late(seq);
      due += asks ? kAnswerGrace : grace_of(seq);
      if (!late.ranks.empty() || due <= now) return timeout_error(seq, late);
      if (asks) due = now + kAnswerLook;
    }
    book_.note_deadline(due);
  }
  return {};
}

// A rank that waits for a host leaves the host time to speak first. Ranks that know nothing wait
// twice as long, to hear from such a rank.
Clock::duration LaneWaits::grace_of(std::uint64_t seq) const {
  const bool may_hear = !place_.hosts.is_flat() && protocol_.streams().late_hosts(seq).empty();
  return may_hear ? 2 * kTimeoutGrace : kTimeoutGrace;
}

LaneWaits::Late LaneWaits::late_for(std::uint64_t seq) const {
  // The owner of a chunk may itself wait for a frozen rank to read.
  Late late{seq, peers_.silent()};
  if (!late.ranks.empty()) return late;
  late.ranks = protocol_.missing(seq);
  // An operation for which no owner owes an answer waits for its turn.
  const bool has_its_turn = !late.ranks.empty() || !protocol_.streams().waiting_for(seq).empty();
  const auto& operations = book_.operations();
  for (auto at = operations.begin(); !has_its_turn && at->first < seq; ++at) {
    late = {at->first, protocol_.missing(at->first)};
    if (!late.ranks.empty()) break;
  }
  return late;
}

Awaited LaneWaits::awaited(std::uint64_t seq) const {
  Awaited awaited{late_for(seq).ranks};
  std::erase(awaited.ranks, place_.rank);
  if (awaited.ranks.empty()) awaited.ranks = protocol_.streams().late_hosts(seq);
  if (!awaited.ranks.empty()) return awaited;
  for (const std::uint32_t owner : protocol_.streams().waiting_for(seq)) {
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

std::map<std::uint64_t, Awaited> LaneWaits::all_awaited(std::size_t most) const {
  std::map<std::uint64_t, Awaited> all;
  const auto& operations = book_.operations();
  for (auto at = operations.begin(); at != operations.end() && all.size() < most; ++at) {
    all.emplace(at->first, awaited(at->first));
  }
  return all;
}

// Asks about the operation, or about the first that others must join before it.
bool LaneWaits::ask_who_is_late(std::uint64_t seq) const {
  const auto& operations = book_.operations();
  for (auto at = operations.begin(); at != operations.end() && at->first <= seq; ++at) {
    if (protocol_.ask(at->first)) return true;
  }
  return false;
}

Error LaneWaits::timeout_error(std::uint64_t seq, const Late& late) const {
  const std::string text = place_.who() + " gave up waiting: ";
  const auto number_of = [](Rank rank) { return std::to_string(rank); };
  if (!late.ranks.empty()) {
    const std::string where = late.seq == seq ? "" : ", in a collective that must come first";
    const std::string ranks = list_of(late.ranks, number_of);
    return {ErrorCode::timeout, late.ranks.front(),
            text + "nothing more came from rank(s) " + ranks + where};
  }
  if (const auto hosts = protocol_.streams().late_hosts(seq); !hosts.empty()) {
    return {ErrorCode::timeout, hosts.front(),
            text + "nothing more came from the host(s) of rank(s) " + list_of(hosts, number_of)};
  }
  const auto waiting_for = protocol_.streams().waiting_for(seq);
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
