// How a lane and its operations come to an end: deadlines, lost and leaving peers, and the way out.
#include <algorithm>

#include "comm/exception_error.hpp"
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

void Lane::break_off(Error error) noexcept {
  {
    const std::lock_guard lock(orders_mutex_);
    break_order_ = std::move(error);
    has_orders_ = true;
  }
  thread_.wake();
}

void Lane::leave(std::uint64_t issued, Clock::duration linger) noexcept {
  {
    const std::lock_guard lock(orders_mutex_);
    leave_order_ = {issued, linger};
    has_orders_ = true;
  }
  thread_.wake();
}

void Lane::take_orders() {
  if (!has_orders_.load(std::memory_order_acquire)) return;
  std::unique_lock lock(orders_mutex_);
  has_orders_ = false;
  const Status to_break = std::exchange(break_order_, {});
  const auto to_leave = std::exchange(leave_order_, {});
  lock.unlock();
  if (to_break) do_break_off(*to_break);
  if (to_leave) do_leave(*to_leave);
}

// The first time all ranks are told; where even that cannot be done, the ends of the connections
// tell them.
void Lane::on_exception(const std::exception& exception) noexcept {
  const Error error = error_of(exception, place_.rank);
  if (!broken_) {
    listener_.broken(safe_copy(error));
    return do_break_off(error);
  }
  for (const auto& link : links_) {
    if (link) link->connection.close();
  }
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

void Lane::do_break_off(const Error& error) noexcept {
  if (broken_) return;
  broken_ = true;
  owner_.reset();
  peer_.reset();
  for (const auto& link : links_) {
    if (link) say_last_words(*link, error);
  }
  while (!in_flight_.empty()) {
    const std::uint64_t seq = in_flight_.begin()->first;
    worker_.drop(seq);
    end_operation(seq);
  }
}

void Lane::say_last_words(Link& link, const Error& error) noexcept {
  try {
    link.connection.drop_unsent();
    link.connection.detach();
    link.connection.send(wire::fault_message(wire::FrameKind::abort, error));
  } catch (const std::exception&) {  // It may still lend memory that its owners want back.
    link.connection.close();
  }
}

void Lane::do_leave(const LeaveOrder& order) {
  leaving_ = {.linger = order.linger, .until = Clock::now() + order.linger};
  if (broken_) return;
  send_to_links({{.kind = wire::FrameKind::goodbye,
                  .seq = order.issued,
                  .chunk = static_cast<std::uint64_t>(place_.rank)},
                 {}});
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
      const Late late = late_for(seq);
      due += kTimeoutGrace;
      if (!late.ranks.empty() || due <= now) return listener_.broken(timeout_error(seq, late));
    }
    next_deadline_ = std::min(next_deadline_, due);
  }
}

Lane::Late Lane::late_for(std::uint64_t seq) const {
  // Whoever owns a chunk may itself wait for a frozen rank to read.
  if (auto silent = silent_ranks(); !silent.empty()) return {seq, std::move(silent)};
  Late late{seq, missing(seq)};
  // What no owner has to answer for waits for its turn.
  const bool has_its_turn = !late.ranks.empty() || !worker_.waiting_for(seq).empty();
  for (auto at = in_flight_.begin(); !has_its_turn && at->first < seq; ++at) {
    late = {at->first, missing(at->first)};
    if (!late.ranks.empty()) break;
  }
  return late;
}

std::vector<Rank> Lane::missing(std::uint64_t seq) const {
  auto missing = peer_ ? peer_->missing(seq) : std::vector<Rank>{};
  if (missing.empty() && owner_) missing = owner_->missing(seq);
  return missing;
}

Error Lane::timeout_error(std::uint64_t seq, const Late& late) const {
  const std::string text = "rank " + std::to_string(place_.rank) + " gave up waiting: ";
  if (!late.ranks.empty()) {
    const std::string where = late.seq == seq ? "" : ", in a collective that must come first";
    return {ErrorCode::timeout, late.ranks.front(),
            text + "nothing more came from rank(s) " + list_of(late.ranks) + where};
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
