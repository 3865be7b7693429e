// Bookkeeping of operations across lanes; one lock, never held while waiting.
#include "comm/communicator.hpp"

#include <utility>

#include "proto/stream/dense.hpp"
#include "proto/stream/plan.hpp"

namespace sparsewire::comm {
namespace {

// Notices that nobody has asked for.
constexpr std::size_t kNoticesKept = 256;

}  // namespace

Communicator::Communicator(const wire::Topology& topology, Rank rank, bool dedicated,
                           net::Sockets sockets)
    : topology_(topology), rank_(rank), dedicated_(dedicated) {
  for (std::uint32_t lane = 0; lane < sockets.lanes(); ++lane) {
    lanes_.push_back(std::make_unique<Lane>(Lane::Place{topology, lane, rank, dedicated},
                                            sockets.of_lane(lane), *this));
  }
  for (const auto& lane : lanes_) lane->start();
}

Communicator::~Communicator() { close(std::chrono::seconds{0}); }

std::shared_ptr<Operation> Communicator::submit(const Operation::Arguments& arguments) {
  const wire::Descriptor& descriptor = arguments.descriptor();
  const bool leaves_out_zeros =
      !descriptor.is_sparse &&
      proto::leaves_out_zeros({arguments.source, arguments.target, descriptor,
                               proto::make_grid(descriptor, topology_)});
  const Status bad_input = descriptor.is_sparse ? proto::check(arguments.tensor) : Status{};
  const std::lock_guard lock(mutex_);
  const std::uint64_t seq = next_seq_++;
  auto operation = std::make_shared<Operation>(seq, arguments, leaves_out_zeros);
  if (broken_) {
    ++failed_;
    operation->end(broken_);
    return operation;
  }
  if (bad_input) {
    const std::string text = "rank " + std::to_string(rank_) + ": " + bad_input->message;
    in_flight_.emplace(seq, InFlight{operation, 1, InFlight::State::running, {}});
    lanes_.front()->refuse(operation, {ErrorCode::input, rank_, text});
  } else {
    issue_locked(operation);
  }
  if (const auto early = early_failures_.extract(seq)) fail_locked(seq, early.mapped());
  return operation;
}

// All ranks must join what may run as an exchange; the rest are streams from the start.
bool Communicator::needs_agreement(const Operation::Arguments& arguments) const {
  if (dedicated_ || !arguments.descriptor().is_sparse) return false;
  // A stream does not tell rows that were cut from a vector of as many elements; a join does.
  const bool is_settled = arguments.join.unit == 1 &&
                          arguments.join.algorithm == wire::Algorithm::automatic &&
                          proto::is_short(arguments.descriptor());
  if (is_settled && arguments.join.collective == wire::Collective::all_reduce) return false;
  return arguments.join.collective != wire::Collective::all_reduce ||
         !proto::runs_as_stream(arguments.join.algorithm);
}

void Communicator::issue_locked(const std::shared_ptr<Operation>& operation) {
  using State = InFlight::State;
  const std::uint64_t seq = operation->seq();
  if (needs_agreement(operation->arguments())) {
    in_flight_.emplace(seq, InFlight{operation, 1, State::agreeing, {}});
    lanes_.front()->join(operation);
    return;
  }
  in_flight_.emplace(seq, InFlight{operation, lanes_.size(), State::waiting, {}});
  lanes_.front()->announce(seq, operation->stream_descriptor());
  run_waiting_locked();
}

void Communicator::run_waiting_locked() {
  for (auto& [seq, in_flight] : in_flight_) {
    if (in_flight.state == InFlight::State::agreeing) return;
    if (in_flight.state == InFlight::State::waiting) run_stream_locked(in_flight);
  }
}

void Communicator::run_stream_locked(InFlight& in_flight) {
  Operation& operation = *in_flight.operation;
  const wire::Descriptor& descriptor = operation.stream_descriptor();
  if (descriptor.is_sparse) operation.open_stream(proto::make_grid(descriptor, topology_));
  in_flight.state = InFlight::State::running;
  in_flight.lanes_left = lanes_.size();
  for (const auto& lane : lanes_) lane->submit(in_flight.operation);
}

void Communicator::operation_chosen(std::uint64_t seq, Choice choice) {
  const std::lock_guard lock(mutex_);
  const auto at = in_flight_.find(seq);
  if (at == in_flight_.end() || broken_) return;
  InFlight& in_flight = at->second;
  if (choice == Choice::stream) in_flight.operation->leave_out_stripes();
  in_flight.state =
      choice == Choice::exchange ? InFlight::State::running : InFlight::State::waiting;
  run_waiting_locked();
}

void Communicator::set_link(const proto::LinkModel& link) {
  const std::lock_guard lock(mutex_);
  link_ = link;
  for (const auto& lane : lanes_) lane->set_link(link);
}

proto::LinkModel Communicator::link() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

void Communicator::watch(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  const auto at = in_flight_.find(operation->seq());
  if (at != in_flight_.end()) {
    at->second.watched = true;
    return;
  }
  completed_.push_back(std::move(operation));
  completed_changed_.notify_one();
}

std::shared_ptr<Operation> Communicator::next_completed() {
  std::unique_lock lock(mutex_);
  completed_changed_.wait(lock, [this] { return closed_ || !completed_.empty(); });
  if (completed_.empty()) return nullptr;
  auto operation = std::move(completed_.front());
  completed_.pop_front();
  return operation;
}

void Communicator::abort(const std::string& message) {
  broken({ErrorCode::aborted, rank_, "rank " + std::to_string(rank_) + " aborted: " + message});
}

void Communicator::close(Clock::duration linger) {
  const std::lock_guard closing(closing_);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (!in_flight_.empty()) {
      break_locked(
          {ErrorCode::aborted, rank_,
           "rank " + std::to_string(rank_) + " closed its communicator with operations in flight"});
    }
    if (!broken_) broken_ = Error{ErrorCode::closed, kNoRank, "the communicator is closed"};
    for (const auto& lane : lanes_) lane->leave(next_seq_, linger);
  }
  for (const auto& lane : lanes_) lane->await_end();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  completed_changed_.notify_all();
  notices_changed_.notify_all();
}

void Communicator::disown() {
  for (const auto& lane : lanes_) lane->disown();
}

Stats Communicator::stats() const {
  Stats stats;
  for (const auto& lane : lanes_) {
    const LaneCounters& counters = lane->counters();
    stats.bytes_sent += counters.bytes_sent.load(std::memory_order_relaxed);
    stats.bytes_received += counters.bytes_received.load(std::memory_order_relaxed);
    stats.segments_sent += counters.segments_sent.load(std::memory_order_relaxed);
    stats.results_received += counters.results_received.load(std::memory_order_relaxed);
    stats.chunks_empty += counters.chunks_empty.load(std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  stats.operations = next_seq_;
  stats.operations_failed = failed_;
  return stats;
}

Activity Communicator::activity() const {
  const std::lock_guard lock(mutex_);
  Activity activity{.in_flight = in_flight_.size(), .oldest = oldest_locked(), .failure = broken_};
  for (const auto& [peer, entry] : silent_) {
    const auto& [silence, since] = entry;
    activity.silent.push_back(silence);
    activity.silent.back().lasted = milliseconds_of(Clock::now()) - milliseconds_of(since);
  }
  return activity;
}

std::optional<Activity::Current> Communicator::oldest_locked() const {
  if (in_flight_.empty()) return {};
  const auto& [seq, oldest] = *in_flight_.begin();
  const auto collective = oldest.operation->arguments().join.collective;
  return Activity::Current{std::string(wire::name_of(collective)), seq,
                           Clock::now() - oldest.issued};
}

void Communicator::peer_silent(const Silence& silence) {
  const std::lock_guard lock(mutex_);
  const bool is_news =  // Several aggregators tell of the same rank.
      silence.is_over
          ? silent_.erase(silence.peer) != 0
          : silent_.try_emplace(silence.peer, silence, Clock::now() - silence.lasted).second;
  if (!is_news) return;
  if (notices_.size() == kNoticesKept) notices_.pop_front();
  notices_.push_back({silence, oldest_locked()});
  notices_changed_.notify_one();
}

std::optional<Notice> Communicator::next_notice() {
  std::unique_lock lock(mutex_);
  notices_changed_.wait(lock, [this] { return closed_ || !notices_.empty(); });
  if (notices_.empty()) return {};
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

void Communicator::operation_left(std::uint64_t seq) {
  const std::lock_guard lock(mutex_);
  --in_flight_.at(seq).lanes_left;
  end_in_order_locked();
}

void Communicator::end_in_order_locked() {
  while (!in_flight_.empty() && in_flight_.begin()->second.lanes_left == 0) {
    auto entry = in_flight_.extract(in_flight_.begin());
    InFlight& done = entry.mapped();
    failed_ += done.failure.has_value();
    done.operation->end(std::move(done.failure));
    if (!done.watched) continue;
    completed_.push_back(std::move(done.operation));
    completed_changed_.notify_one();
  }
}

void Communicator::operation_failed(std::uint64_t seq, Error error) {
  const std::lock_guard lock(mutex_);
  if (seq >= next_seq_) {
    early_failures_.emplace(seq, std::move(error));
  } else {
    fail_locked(seq, error);
  }
}

void Communicator::fail_locked(std::uint64_t seq, const Error& error) {
  const auto at = in_flight_.find(seq);
  if (at == in_flight_.end() || at->second.failure) return;
  at->second.failure = error;
  for (const auto& lane : lanes_) lane->fail(seq);
  // What no lane has got yet, no lane will end.
  if (at->second.state == InFlight::State::waiting) at->second.lanes_left = 0;
  at->second.state = InFlight::State::running;
  run_waiting_locked();
  end_in_order_locked();
}

void Communicator::broken(Error error) {
  const std::lock_guard lock(mutex_);
  break_locked(error);
}

void Communicator::break_locked(const Error& error) {
  if (broken_) return;
  broken_ = error;
  for (auto& [seq, in_flight] : in_flight_) {
    if (!in_flight.failure) in_flight.failure = error;
    if (in_flight.state == InFlight::State::waiting) in_flight.lanes_left = 0;
  }
  for (const auto& lane : lanes_) lane->break_off(error);
  end_in_order_locked();
}

}  // namespace sparsewire::comm
