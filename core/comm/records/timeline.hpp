// A file for trace viewers that shows what operations did and when. Events are kept in bounded
// memory, and a thread of the timeline writes them, so that lanes and callers only note them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "comm/progress/progress_thread.hpp"

namespace sparsewire::comm {

// Names a slice of a timeline: a stage of an operation on a lane or, by the name of its collective
// and on no lane, the operation itself. Names must outlive the timeline.
struct Slice {
  std::string_view name;
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  std::int32_t lane = -1;
};

struct TimelineEvent {
  enum class Edge : char { begin = 'b', moment = 'n', end = 'e' };
  struct Figure {
    std::string_view name = {};
    double value = 0;
  };

  Clock::time_point at;
  Edge edge;
  Slice slice;
  std::array<Figure, 4> figures = {};  // those with a name
  std::string_view algorithm = {};
  std::vector<Rank> ranks = {};
  std::string words = {};
};

class Timeline {
 public:
  // Takes over an empty file, for this rank's process. Viewers show it under `title`.
  Timeline(int fd, Rank rank, const std::string& title);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A beginning is refused while too many events wait to be written. The end of a refused slice
  // must not be noted. So no more ends wait than there are slices at once.
  [[nodiscard]] bool begin(TimelineEvent event) noexcept;
  void note(TimelineEvent event) noexcept;

  // Events that were refused so far.
  std::uint64_t refused() const;
  // Returns once all events noted before are in the file.
  void flush();

 private:
  void run();
  void write(const std::vector<TimelineEvent>& events);
  void append(const std::string& text);
  std::string text_of(const TimelineEvent& event) const;
  bool add(TimelineEvent&& event) noexcept;

  const int fd_;
  const Rank rank_;
  const std::int64_t epoch_ns_;  // how far the wall clock is ahead of this process's clock
  std::int64_t end_ = 0;         // of the written events, where the closing bracket is
  bool can_write_ = true;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TimelineEvent> events_;
  std::uint64_t refused_ = 0;
  std::uint64_t flushes_asked_ = 0;
  std::uint64_t flushes_done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace sparsewire::comm
