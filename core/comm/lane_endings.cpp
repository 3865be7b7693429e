// How a lane and its operations come to an end: deadlines, lost and leaving peers, and the way out.
#include <algorithm>

#include "comm/link.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {
namespace {

// How long a rank that cannot tell who is late waits for a peer that can.
constexpr std::chrono::milliseconds kTimeoutGrace{250};

std::string list_of(std::span<const Rank> ranks) {
  std::string text;
  for (const Rank rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

void Lane::break_off(Error error) {
  thread_.post([this, error = std::move(error)] { do_break_off(error); });
}

void Lane::leave(std::uint64_t issued, Clock::duration linger) {
  thread_.post([this, issued, linger] { do_leave(issued, linger); });
}

// As long as bytes move, somebody still reads them.
void Lane::finish_leaving(Clock::time_point now) {
  std::size_t undelivered = 0;
  for (const auto& link : links_) undelivered += link ? link->connection.undelivered_bytes() : 0;
  if (undelivered < leaving_->undelivered) {
    leaving_->undelivered = undelivered;
    leaving_->until = now + leaving_->linger;
  }
  finished_ = undelivered == 0 || now >= leaving_->until;
  if (!finished_) return;
  for (const auto& link : links_) {
    if (link) link->connection.close();
  }
}

void Lane::disown() {
  for (const auto& link : links_) {
    if (link) link->connection.disown();
  }
  thread_.disown();
}

// A peer that has said goodbye may close; any other that goes, or that talks nonsense, ends all.
void Lane::lose(Link& link, const Error& error) {
  if (error.code == ErrorCode::protocol) {
    // Whoever sent nonsense is told so; the close may cut this short, which does no harm.
    link.connection.send(wire::fault_message(wire::FrameKind::abort, error));
    link.connection.flush();
  }
  link.connection.close();
  if (broken_ || leaving_ || departed_.contains(link.rank())) return;
  listener_.broken({error.code, link.rank(), "lost " + name_of(link) + ": " + error.message});
}

void Lane::do_break_off(const Error& error) {
  if (broken_) return;
  broken_ = true;
  owner_.reset();
  peer_.reset();
  for (const auto& link : links_) {
    if (!link) continue;
    link->connection.drop_unsent();
    link->connection.detach();
    link->connection.send(wire::fault_message(wire::FrameKind::abort, error));
  }
  while (!in_flight_.empty()) {
    const std::uint64_t seq = in_flight_.begin()->first;
    worker_.drop(seq);
    end_operation(seq);
  }
}

void Lane::do_leave(std::uint64_t issued, Clock::duration linger) {
  if (!broken_) {
    send_to_links({{.kind = wire::FrameKind::goodbye,
                    .seq = issued,
                    .chunk = static_cast<std::uint64_t>(place_.rank)},
                   {}});
  }
  leaving_ = {.linger = linger, .until = Clock::now() + linger};
}

// A rank that left can contribute to nothing that it did not issue before.
void Lane::check_departures() {
  if (in_flight_.empty()) return;
  const std::uint64_t newest = in_flight_.rbegin()->first;
  for (const auto& [rank, issued] : departed_) {
    if (newest < issued) continue;
    listener_.broken({ErrorCode::peer_lost, rank,
                      "rank " + std::to_string(rank) + " closed its communicator after " +
                          std::to_string(issued) + " operations"});
    return;
  }
}

void Lane::check_deadlines(Clock::time_point now) {
  if (now < next_deadline_) return;
  next_deadline_ = Clock::time_point::max();
  for (const auto& [seq, operation] : in_flight_) {
    auto due = operation->arguments().deadline;
    if (due <= now) {
      const auto late = missing(seq);
      due += kTimeoutGrace;
      if (!late.empty() || due <= now) return listener_.broken(timeout_error(seq, late));
    }
    next_deadline_ = std::min(next_deadline_, due);
  }
}

std::vector<Rank> Lane::missing(std::uint64_t seq) const {
  auto missing = peer_ ? peer_->missing(seq) : std::vector<Rank>{};
  if (missing.empty() && owner_) missing = owner_->missing(seq);
  return missing;
}

Error Lane::timeout_error(std::uint64_t seq, const std::vector<Rank>& missing) const {
  const std::string text = "rank " + std::to_string(place_.rank) + " gave up waiting: ";
  if (!missing.empty()) {
    return {ErrorCode::timeout, missing.front(),
            text + "nothing more came from rank(s) " + list_of(missing)};
  }
  std::string silent;
  for (const std::uint32_t owner : worker_.waiting_for(seq)) {
    const std::string name =
        place_.dedicated ? links_[owner]->connection.peer() : std::to_string(owner);
    silent += (silent.empty() ? "" : ", ") + name;
  }
  const char* kind = place_.dedicated ? "aggregator(s) " : "rank(s) ";
  return {ErrorCode::timeout, kNoRank, text + "no result came from " + kind + silent};
}

}  // namespace sparsewire::comm
