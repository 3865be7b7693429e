// Bookkeeping of operations across lanes; one lock, never held while waiting.
#include "comm/communicator.hpp"

#include <utility>

#include "proto/stream/dense.hpp"

namespace sparsewire::comm {

Communicator::Communicator(const wire::Topology& topology, Rank rank, bool dedicated,
                           const std::vector<std::vector<int>>& sockets)
    : topology_(topology), rank_(rank) {
  for (std::uint32_t lane = 0; lane < sockets.size(); ++lane) {
    lanes_.push_back(
        std::make_unique<Lane>(Lane::Place{topology, lane, rank, dedicated}, sockets[lane], *this));
  }
  for (const auto& lane : lanes_) lane->start();
}

Communicator::~Communicator() { close(std::chrono::seconds{0}); }

std::shared_ptr<Operation> Communicator::submit(const Operation::Arguments& arguments) {
  const bool leaves_out_zeros =
      proto::leaves_out_zeros({arguments.source, arguments.target, arguments.descriptor,
                               proto::make_grid(arguments.descriptor, topology_)});
  const std::lock_guard lock(mutex_);
  const std::uint64_t seq = next_seq_++;
  auto operation = std::make_shared<Operation>(seq, arguments, leaves_out_zeros);
  if (broken_) {
    ++failed_;
    operation->end(broken_);
    return operation;
  }
  in_flight_.emplace(seq, InFlight{operation, lanes_.size(), {}});
  for (const auto& lane : lanes_) lane->submit(operation);
  if (const auto early = early_failures_.extract(seq)) fail_locked(seq, early.mapped());
  return operation;
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
  for (const auto& lane : lanes_) lane->join();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  completed_changed_.notify_all();
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
  }
  for (const auto& lane : lanes_) lane->break_off(error);
}

}  // namespace sparsewire::comm
