// Writes events as Chrome's trace format has them: an array, which is closed after every batch. The
// next batch overwrites the closing bracket.
#include "comm/records/timeline.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <utility>

namespace sparsewire::comm {
namespace {

constexpr std::size_t kMostWaiting = 32'768;
constexpr std::chrono::milliseconds kBatchInterval{200};
constexpr std::string_view kClosing = "\n]\n";

std::int64_t nanoseconds(auto time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// A string of JSON. Control characters become question marks, and so do bytes beyond ASCII, which
// may be no UTF-8.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    const bool is_plain = c >= ' ' && c <= '~';
    out += is_plain ? c : '?';
  }
  return out + '"';
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  std::snprintf(text, sizeof text, is_whole ? "%.0f" : "%.6g", value);
  return text;
}

std::string arguments_of(const TimelineEvent& event) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text += (text.empty() ? "" : ",") + quoted(name) + ":" + value;
  };
  if (event.edge == TimelineEvent::Edge::begin) {
    add("operation", std::to_string(event.slice.seq));
    add("group", std::to_string(event.slice.group));
    if (event.slice.lane >= 0) add("lane", std::to_string(event.slice.lane));
  }
  for (const auto& figure : event.figures) {
    if (!figure.name.empty()) add(figure.name, number(figure.value));
  }
  if (!event.algorithm.empty()) add("algorithm", quoted(event.algorithm));
  if (!event.ranks.empty()) {
    std::string ranks;
    for (const Rank rank : event.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
    add("ranks", "[" + ranks + "]");
  }
  if (!event.words.empty()) add("text", quoted(event.words));
  return text;
}

}  // namespace

Timeline::Timeline(int fd, Rank rank, const std::string& title)
    : fd_(fd),
      rank_(rank),
      epoch_ns_(nanoseconds(std::chrono::system_clock::now()) - nanoseconds(Clock::now())) {
  append("[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + std::to_string(rank) +
         ",\"args\":{\"name\":" + quoted(title) + "}}");
  thread_ = std::thread([this] { run(); });
}

Timeline::~Timeline() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
  ::close(fd_);
}

bool Timeline::begin(TimelineEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  const bool is_taken = events_.size() < kMostWaiting && add(std::move(event));
  refused_ += !is_taken;
  return is_taken;
}

void Timeline::note(TimelineEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  refused_ += !add(std::move(event));
}

// The first event wakes the writer, which lets a batch gather. False if no memory is left.
bool Timeline::add(TimelineEvent&& event) noexcept {
  try {
    events_.push_back(std::move(event));
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (events_.size() == 1) changed_.notify_all();
  return true;
}

std::uint64_t Timeline::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

void Timeline::flush() {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = ++flushes_asked_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return flushes_done_ >= mine; });
}

void Timeline::run() {
  pthread_setname_np(pthread_self(), "sparsewire-time");
  std::unique_lock lock(mutex_);
  const auto is_urgent = [this] { return ends_ || flushes_done_ != flushes_asked_; };
  while (true) {
    changed_.wait(lock, [&] { return is_urgent() || !events_.empty(); });
    changed_.wait_for(lock, kBatchInterval, is_urgent);
    const std::vector<TimelineEvent> batch = std::exchange(events_, {});
    const std::uint64_t asked = flushes_asked_;
    const bool is_last = ends_;
    lock.unlock();
    write(batch);
    lock.lock();
    flushes_done_ = asked;
    changed_.notify_all();
    if (is_last) return;
  }
}

void Timeline::write(const std::vector<TimelineEvent>& events) {
  std::string text;
  for (const TimelineEvent& event : events) text += ",\n" + text_of(event);
  if (!text.empty()) append(text);
}

// Appends with one call, so that a process that is killed leaves a whole array. If the file takes
// no more, as on a full disk, it stays as it is.
void Timeline::append(const std::string& text) {
  const std::string closed = text + std::string(kClosing);
  std::size_t written = 0;
  while (can_write_ && written < closed.size()) {
    const ssize_t count = ::pwrite(fd_, closed.data() + written, closed.size() - written,
                                   end_ + static_cast<std::int64_t>(written));
    if (count > 0) written += static_cast<std::size_t>(count);
    can_write_ = count > 0 || (count < 0 && errno == EINTR);
  }
  if (!can_write_) return;
  end_ += static_cast<std::int64_t>(text.size());
}

std::string Timeline::text_of(const TimelineEvent& event) const {
  const std::int64_t at = nanoseconds(event.at) + epoch_ns_;
  const Slice& slice = event.slice;
  char head[256];
  std::snprintf(head, sizeof head,
                "{\"name\":\"%.*s\",\"cat\":\"sparsewire\",\"ph\":\"%c\",\"id\":\"%d.%u.%" PRIu64
                ".%d.%.*s\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ".%03d,\"args\":{",
                static_cast<int>(slice.name.size()), slice.name.data(),
                static_cast<char>(event.edge), rank_, slice.group, slice.seq, slice.lane,
                static_cast<int>(slice.name.size()), slice.name.data(), rank_, slice.lane + 1,
                at / 1000, static_cast<int>(at % 1000));
  return head + arguments_of(event) + "}}";
}

}  // namespace sparsewire::comm
