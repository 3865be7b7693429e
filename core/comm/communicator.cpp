// Bookkeeping of operations across lanes; one lock, never held while waiting.
#include "comm/communicator.hpp"

#include <numeric>
#include <utility>

#include "comm/lanes/lane.hpp"
#include "comm/progress/exceptions.hpp"

namespace sparsewire::comm {
namespace {

// How many notices are kept that no thread has taken.
constexpr std::size_t kNoticesKept = 256;

}  // namespace

Communicator::Communicator(const wire::Topology& topology, Rank rank, bool dedicated,
                           net::Sockets sockets, const proto::Hosts& hosts,
                           std::shared_ptr<DatagramPlace> datagrams,
                           std::shared_ptr<Timeline> timeline)
    : topology_(topology),
      rank_(rank),
      dedicated_(dedicated),
      own_mesh_(std::make_unique<Mesh>(
          MeshPlace{.peers = topology.owners,
                    .rank = rank,
                    .dedicated = dedicated,
                    .has_losses = datagrams != nullptr,
                    .patience = proto::Milliseconds{topology.peer_timeout_ms}},
          std::move(sockets))),
      mesh_(*own_mesh_),
      timeline_(std::move(timeline)) {
  std::vector<std::uint32_t> everybody(topology.owners);
  std::iota(everybody.begin(), everybody.end(), 0u);
  join({.number = 0, .members = std::move(everybody)}, hosts, datagrams);
}

Communicator::Communicator(const wire::Topology& topology, Rank rank, Mesh& mesh,
                           const Group& group, const proto::Hosts& hosts,
                           std::shared_ptr<Timeline> timeline)
    : topology_(topology),
      rank_(rank),
      dedicated_(false),
      mesh_(mesh),
      timeline_(std::move(timeline)) {
  join(group, hosts, nullptr);
}

// All parts are made before the first one works, because it may report that something is broken.
void Communicator::join(const Group& group, const proto::Hosts& hosts,
                        const std::shared_ptr<DatagramPlace>& datagrams) {
  hosts_ = hosts.count(topology_.world_size);
  number_ = group.number;
  for (std::uint32_t number = 0; number < mesh_.lanes(); ++number) {
    lanes_.push_back(
        std::make_shared<LaneGroup>(LanePlace{topology_, number, rank_, dedicated_, hosts,
                                              number == 0 ? datagrams : nullptr, timeline_},
                                    group.number, group.members, mesh_.lane(number), *this));
  }
  std::size_t joined = 0;
  try {
    for (; joined < lanes_.size(); ++joined) mesh_.lane(joined).join(lanes_[joined]);
  } catch (...) {  // Groups that have joined must leave before they can be destroyed.
    for (std::size_t lane = 0; lane < joined; ++lane) lanes_[lane]->leave(0, {});
    for (std::size_t lane = 0; lane < joined; ++lane) lanes_[lane]->await_end();
    throw;
  }
}

Communicator::~Communicator() { close(std::chrono::seconds{0}); }

std::shared_ptr<Operation> Communicator::submit(const Operation::Arguments& arguments) {
  auto operation = std::make_shared<Operation>(arguments, topology_);
  const std::lock_guard lock(mutex_);
  operation->issue(next_seq_);
  if (broken_) {
    operation->end(broken_);
    ++next_seq_;
    ++failed_;
    return operation;
  }
  InFlight& in_flight = in_flight_.emplace(next_seq_, InFlight{operation}).first->second;
  ++next_seq_;
  if (timeline_) tell_begin(in_flight);
  try {
    issue_locked(in_flight);
  } catch (const std::exception& exception) {
    break_locked(error_of(exception, rank_));  // Some lanes may have the operation, and others not.
  }
  return operation;
}

void Communicator::issue_locked(InFlight& in_flight) {
  using State = InFlight::State;
  const auto& operation = in_flight.operation;
  const bool is_refused = operation->bad_input().has_value();
  if (is_refused) {
    in_flight.state = State::running;
  } else if (!dedicated_ && operation->needs_agreement()) {
    in_flight.state = State::agreeing;
  }
  if (is_refused || !dedicated_) {
    lanes_.front()->introduce(operation);
    ++in_flight.lanes_left;
  }
  run_waiting_locked(Wake::not_yet);
  const auto early = early_failures_.extract(operation->seq());
  if (early && !is_refused) fail_locked(operation->seq(), early.mapped());
}

bool Communicator::wait(const Operation& operation, Clock::duration patience) {
  const auto until = Clock::now() + patience;
  lanes_[operation.main_lane()]->work([&] { return operation.ended(); }, until);
  return operation.wait(std::max(until - Clock::now(), Clock::duration{0}));
}

// For the latest operation no lane needs to be woken: its caller is about to work.
void Communicator::run_waiting_locked(Wake when) {
  using State = InFlight::State;
  if (broken_) return;
  for (auto at = in_flight_.lower_bound(next_to_run_); at != in_flight_.end(); ++at) {
    if (at->second.state == State::agreeing) return;
    if (at->second.state == State::waiting) run_stream_locked(at->second, when);
    next_to_run_ = at->first + 1;
  }
}

void Communicator::run_stream_locked(InFlight& in_flight, Wake when) {
  in_flight.operation->open_stream();
  in_flight.state = InFlight::State::running;
  for (const auto& lane : lanes_) {
    lane->submit(in_flight.operation, when);
    const bool knows_it = !dedicated_ && lane == lanes_.front();
    if (!knows_it) ++in_flight.lanes_left;
  }
}

// The lane that reports the exchange has its own parts already.
void Communicator::share_exchange_locked(InFlight& in_flight, const Order& order) {
  for (std::size_t number = 1; number < lanes_.size(); ++number) {
    lanes_[number]->exchange(in_flight.operation, order);
    ++in_flight.lanes_left;
  }
}

void Communicator::operation_chosen(std::uint64_t seq, proto::Route route, const Order& order) {
  const std::lock_guard lock(mutex_);
  const auto at = in_flight_.find(seq);
  if (at == in_flight_.end() || broken_) return;
  InFlight& in_flight = at->second;
  if (route == proto::Route::stream) in_flight.operation->leave_out_stripes();
  if (order && !in_flight.failure) share_exchange_locked(in_flight, order);
  in_flight.state =
      route == proto::Route::exchange ? InFlight::State::running : InFlight::State::waiting;
  run_waiting_locked();
}

void Communicator::set_link(const proto::LinkFigures& link) {
  const std::lock_guard lock(mutex_);
  link_ = link;
  for (const auto& lane : lanes_) lane->set_link(link);
}

proto::LinkFigures Communicator::link() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

void Communicator::watch(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  const auto at = in_flight_.find(operation->seq());
  if (at != in_flight_.end()) {
    if (at->second.watched.empty()) at->second.watched.push_back(std::move(operation));
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
      break_locked(error_saying(ErrorCode::aborted, rank_, [this] {
        return "rank " + std::to_string(rank_) +
               " closed its communicator with operations in flight";
      }));
    }
    if (!broken_) {
      broken_ =
          error_saying(ErrorCode::closed, kNoRank, [] { return "the communicator is closed"; });
    }
    for (const auto& lane : lanes_) lane->leave(next_seq_, linger);
  }
  for (const auto& lane : lanes_) lane->await_end();
  if (own_mesh_) own_mesh_->close();
  if (timeline_) timeline_->flush();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  completed_changed_.notify_all();
  notices_changed_.notify_all();
}

void Communicator::disown() {
  if (own_mesh_) own_mesh_->disown();
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
  const SlotFigures& slots = lanes_.front()->counters().slots;
  for (std::size_t i = 0; i < kSlotFigureCount; ++i) {
    stats.slots[i] = slots.get(static_cast<SlotFigure>(i));
  }
  const std::lock_guard lock(mutex_);
  stats.operations = next_seq_;
  stats.operations_failed = failed_;
  stats.elements = elements_;
  stats.elements_sent = elements_sent_;
  return stats;
}

void Communicator::peer_silent(const Silence& silence) {
  const std::lock_guard lock(mutex_);
  const bool is_news =  // Several aggregators may report the same rank.
      silence.is_over
          ? silent_.erase(silence.peer) != 0
          : silent_.try_emplace(silence.peer, silence, Clock::now() - silence.lasted).second;
  if (is_news) tell_locked({silence, {}, oldest_locked()});
}

void Communicator::datagrams_troubled(const std::string& text) {
  const std::lock_guard lock(mutex_);
  tell_locked({{}, text, oldest_locked()});
}

void Communicator::tell_locked(Notice notice) {
  if (notices_.size() == kNoticesKept) notices_.pop_front();
  notices_.push_back(std::move(notice));
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
  const auto at = in_flight_.find(seq);
  if (at == in_flight_.end() || at->second.lanes_left == 0) return;
  --at->second.lanes_left;
  end_in_order_locked();
}

void Communicator::end_in_order_locked() {
  while (!in_flight_.empty() && in_flight_.begin()->second.has_ended()) {
    auto entry = in_flight_.extract(in_flight_.begin());
    InFlight& done = entry.mapped();
    failed_ += done.failure.has_value();
    if (const auto named = done.operation->named(); named && !done.failure) {
      elements_ += done.operation->arguments().call.descriptor.count;
      elements_sent_ += *named;
    }
    if (timeline_) tell_end(done);
    done.operation->end(std::move(done.failure));
    // Another lane than the one at which a caller works may have ended the operation.
    if (lanes_.size() > 1) lanes_[done.operation->main_lane()]->wake();
    if (done.watched.empty()) continue;
    completed_.splice(completed_.end(), done.watched);
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
  at->second.state = InFlight::State::running;
  run_waiting_locked();
  end_in_order_locked();
}

void Communicator::broken(Error error) {
  const std::lock_guard lock(mutex_);
  break_locked(error);
}

// Must not fail: the error may be that memory has run out.
void Communicator::break_locked(const Error& error) noexcept {
  if (broken_) return;
  broken_ = safe_copy(error);
  for (auto& [seq, in_flight] : in_flight_) {
    if (!in_flight.failure) in_flight.failure = safe_copy(error);
    in_flight.state = InFlight::State::running;
  }
  for (const auto& lane : lanes_) lane->break_off(safe_copy(error));
  end_in_order_locked();
}

}  // namespace sparsewire::comm
