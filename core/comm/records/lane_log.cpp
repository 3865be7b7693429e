// Makes slices of the stages of a lane's operations.
#include "comm/records/lane_log.hpp"

#include <algorithm>
#include <utility>

namespace sparsewire::comm {
namespace {

// The least wait that is told. Every exchange of messages has shorter ones.
constexpr std::chrono::milliseconds kWaitTold{1};

using Edge = TimelineEvent::Edge;

}  // namespace

void LaneLog::note_begun(std::uint64_t seq) {
  here_.insert(seq);
  next_ = std::max(next_, seq + 1);
}

void LaneLog::note_chosen(std::uint64_t seq, std::string_view algorithm) {
  timeline_->note({.at = Clock::now(),
                   .edge = Edge::moment,
                   .slice = slice("chosen", seq),
                   .algorithm = algorithm});
}

std::string_view LaneLog::name_of(const Stages& stages) const {
  if (&stages == &scanned_) return "scan";
  return &stages == &sent_ ? "send" : "receive";
}

LaneLog::Stage& LaneLog::stage(Stages& stages, std::uint64_t seq, Clock::time_point now) {
  const auto [at, is_new] = stages.try_emplace(seq);
  if (is_new) {
    at->second.is_told =
        timeline_->begin({.at = now, .edge = Edge::begin, .slice = slice(name_of(stages), seq)});
  }
  return at->second;
}

void LaneLog::note_scanned(std::uint64_t seq, Clock::time_point since, std::uint64_t elements,
                           std::uint64_t named) {
  Stage& scan = stage(scanned_, seq, since);
  scan.last = Clock::now();
  scan.busy += scan.last - since;
  scan.count += elements;
  scan.size += named;
}

// Other ranks may begin an operation earlier. Late frames of one that has ended are not noted.
bool LaneLog::may_come(const Stages& stages, std::uint64_t seq) const {
  return seq >= next_ || here_.contains(seq) || stages.contains(seq);
}

void LaneLog::note_frame(Stages& stages, const wire::FrameHeader& header) {
  if (wire::is_control(header.kind) || header.kind == wire::FrameKind::hello) return;
  if (!may_come(stages, header.seq)) return;
  const auto now = Clock::now();
  Stage& frames = stage(stages, header.seq, now);
  frames.last = now;
  ++frames.count;
  frames.size += wire::kHeaderBytes + header.payload;
}

void LaneLog::note_waiting(std::uint64_t seq, const Awaited& awaited, Clock::time_point now) {
  const bool is_same = wait_ && wait_->seq == seq && wait_->awaited == awaited;
  if (!is_same) {
    note_busy(now);
    wait_ = Wait{seq, awaited, now};
  }
  if (!wait_->is_due || now - wait_->since < kWaitTold) return;
  wait_->is_due = false;
  wait_->is_told = timeline_->begin({.at = wait_->since,
                                     .edge = Edge::begin,
                                     .slice = slice("wait", seq),
                                     .ranks = awaited.ranks,
                                     .words = awaited.names()});
}

void LaneLog::note_busy(Clock::time_point now) {
  if (!wait_) return;
  if (wait_->is_told) {
    timeline_->note({.at = now, .edge = Edge::end, .slice = slice("wait", wait_->seq)});
  }
  wait_.reset();
}

Clock::time_point LaneLog::next_due() const {
  return wait_ && wait_->is_due ? wait_->since + kWaitTold : Clock::time_point::max();
}

void LaneLog::note_ended(std::uint64_t seq) {
  here_.erase(seq);
  if (wait_ && wait_->seq == seq) note_busy(Clock::now());
  end(scanned_, seq, "elements", "sent_elements");
  end(sent_, seq, "frames", "bytes");
  end(received_, seq, "frames", "bytes");
}

void LaneLog::end(Stages& stages, std::uint64_t seq, std::string_view count,
                  std::string_view size) {
  const std::string_view name = name_of(stages);
  const auto at = stages.extract(seq);
  if (!at || !at.mapped().is_told) return;
  const Stage& stage = at.mapped();
  TimelineEvent event{.at = stage.last, .edge = Edge::end, .slice = slice(name, seq)};
  event.figures[0] = {count, static_cast<double>(stage.count)};
  event.figures[1] = {size, static_cast<double>(stage.size)};
  if (stage.busy.count() != 0) {
    event.figures[2] = {"busy_us", std::chrono::duration<double, std::micro>(stage.busy).count()};
  }
  timeline_->note(std::move(event));
}

}  // namespace sparsewire::comm
