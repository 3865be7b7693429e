// What a lane notes about its operations for the timeline: when each stage began and ended, how
// much was sent and received, and for which peers it waited. One stage is one slice, however many
// messages it has.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "comm/records/survey.hpp"
#include "comm/records/timeline.hpp"
#include "wire/frame.hpp"

namespace sparsewire::comm {

class LaneLog {
 public:
  LaneLog(std::shared_ptr<Timeline> timeline, std::uint32_t group, std::uint32_t lane)
      : timeline_(std::move(timeline)), group_(group), lane_(static_cast<std::int32_t>(lane)) {}

  void note_begun(std::uint64_t seq);
  void note_chosen(std::uint64_t seq, std::string_view algorithm);
  // It has looked through `elements` elements of its input, and found `named` worth sending.
  void note_scanned(std::uint64_t seq, Clock::time_point since, std::uint64_t elements,
                    std::uint64_t named);
  void note_sent(const wire::FrameHeader& header) { note_frame(sent_, header); }
  void note_received(const wire::FrameHeader& header) { note_frame(received_, header); }
  // At the end of each turn: there is nothing to do before one of the awaited has done something.
  void note_waiting(std::uint64_t seq, const Awaited& awaited, Clock::time_point now);
  void note_busy(Clock::time_point now);
  // When the present wait is long enough to be told.
  Clock::time_point next_due() const;
  void note_ended(std::uint64_t seq);

 private:
  // The time from the first to the last event of a stage.
  struct Stage {
    bool is_told = false;
    Clock::time_point last = {};
    Clock::duration busy{0};
    std::uint64_t count = 0;  // elements or frames
    std::uint64_t size = 0;   // elements or bytes
  };
  using Stages = std::map<std::uint64_t, Stage>;  // by operation
  struct Wait {
    std::uint64_t seq;
    Awaited awaited;
    Clock::time_point since;
    bool is_due = true;
    bool is_told = false;
  };

  Slice slice(std::string_view name, std::uint64_t seq) const { return {name, group_, seq, lane_}; }
  bool may_come(const Stages& stages, std::uint64_t seq) const;
  Stage& stage(Stages& stages, std::uint64_t seq, Clock::time_point now);
  void note_frame(Stages& stages, const wire::FrameHeader& header);
  std::string_view name_of(const Stages& stages) const;
  void end(Stages& stages, std::uint64_t seq, std::string_view count, std::string_view size);

  const std::shared_ptr<Timeline> timeline_;
  const std::uint32_t group_;
  const std::int32_t lane_;
  std::set<std::uint64_t> here_;
  std::uint64_t next_ = 0;  // no operation from this one on was ever here
  Stages scanned_;
  Stages sent_;
  Stages received_;
  std::optional<Wait> wait_;
};

}  // namespace sparsewire::comm
