// Workers and aggregators of slots over links that lose, double, delay and damage datagrams: all in
// one thread, in virtual time, and from one seed.
#pragma once

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "proto/slots/aggregator.hpp"
#include "proto/slots/worker.hpp"
#include "random.hpp"
#include "virtual_time.hpp"
#include "wire/tag.hpp"

namespace sparsewire::test {

// What a UDP datagram needs on a link beside its content: Ethernet, IPv4 and UDP.
inline constexpr std::size_t kDatagramOverhead = 66;

// Shares of the datagrams on a link, each way.
struct Faults {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;  // arrive later than others that were sent after them
  double corruption = 0;
  double strangers = 0;  // after so many there is one that makes no sense
};

struct NetworkShape {
  proto::SlotPool pool;
  std::uint32_t aggregators = 1;
  LinkShape link;  // of each worker, each way
  Faults faults;
  std::vector<Nanoseconds> lags = {};  // per worker: it looks at what has come up to so much later
};

template <typename Worker = proto::SlotWorker, typename Aggregator = proto::SlotAggregator>
class SlotNetwork {
 public:
  struct Counts {
    std::uint64_t datagrams = 0;  // given to a link
    std::uint64_t lost = 0;       // those that did not arrive, or not whole
  };

  SlotNetwork(const NetworkShape& shape, std::uint64_t seed)
      : shape_(shape),
        random_(seed),
        key_(random_bytes(wire::kTagKeyBytes, random_), shape.pool.datagram_bytes) {
    for (std::uint32_t i = 0; i < shape.aggregators; ++i) {
      aggregators_.push_back(std::make_unique<Aggregator>(shape.pool));
    }
    for (std::uint16_t worker = 0; worker < shape.pool.workers; ++worker) {
      hosts_.push_back({Link(shape.link), Link(shape.link), {}});
      for (std::uint32_t i = 0; i < shape.aggregators; ++i) {
        hosts_.back().ends.push_back(std::make_unique<End>(shape.pool, worker));
      }
    }
  }

  VirtualTime& time() { return time_; }
  Link& up(std::size_t worker) { return hosts_[worker].up; }
  Link& down(std::size_t worker) { return hosts_[worker].down; }
  Worker& worker(std::size_t worker, std::size_t aggregator = 0) {
    return hosts_[worker].ends[aggregator]->worker;
  }
  Aggregator& aggregator(std::size_t index = 0) { return *aggregators_[index]; }
  const Counts& counts() const { return counts_; }

  // The tensor's share of each aggregator.
  void begin(std::size_t worker, std::uint64_t seq, proto::SlotTensor tensor) {
    tensor.owners = shape_.aggregators;
    for (std::uint32_t i = 0; i < shape_.aggregators; ++i) {
      tensor.owner = i;
      this->worker(worker, i).begin(seq, tensor);
      wake(worker, i);
    }
  }

  // Until all is done, or for so long.
  void run(Nanoseconds patience = std::chrono::minutes{10}) { time_.run(time_.now() + patience); }

  // How the operation ended at this worker: once at each aggregator, and everywhere alike.
  std::size_t ends(std::size_t worker, std::uint64_t seq) const {
    const auto at = hosts_[worker].ended.find(seq);
    return at == hosts_[worker].ended.end() ? 0 : at->second.size();
  }
  const std::vector<Status>& failures(std::size_t worker, std::uint64_t seq) const {
    return hosts_[worker].ended.at(seq);
  }
  Nanoseconds ended_at(std::size_t worker) const { return hosts_[worker].last_end; }

  std::uint64_t retransmissions() {
    std::uint64_t total = 0;
    for (auto& host : hosts_) {
      for (auto& end : host.ends) total += end->worker.counters().retransmissions;
    }
    return total;
  }

 private:
  struct End {  // of a worker, at one aggregator
    End(const proto::SlotPool& pool, std::uint16_t number) : worker(pool, number) {}

    Worker worker;
    std::deque<Buffer> inbox;
    bool is_woken = false;
    Nanoseconds timer = Nanoseconds::max();
  };
  struct Host {
    Link up;
    Link down;
    std::vector<std::unique_ptr<End>> ends;
    std::map<std::uint64_t, std::vector<Status>> ended = {};
    Nanoseconds last_end{0};
  };

  proto::Microseconds now() const {
    return std::chrono::duration_cast<proto::Microseconds>(time_.now());
  }
  bool happens(double share) {
    return share > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < share;
  }

  // --- Links ---

  // Calls arrive(datagram) for what of it arrives, perhaps twice or late, and is whole.
  template <typename Arrive>
  void cross(Link& link, Buffer datagram, Arrive arrive) {
    const int copies = happens(shape_.faults.duplication) ? 2 : 1;
    for (int i = 0; i < copies; ++i) cross_once(link, datagram, arrive);
  }

  template <typename Arrive>
  void cross_once(Link& link, Buffer datagram, Arrive arrive) {
    ++counts_.datagrams;
    const auto arrival = link.send(datagram.size() + kDatagramOverhead, time_.now());
    if (!arrival || happens(shape_.faults.loss)) {
      ++counts_.lost;
      return;
    }
    if (happens(shape_.faults.corruption)) {
      ++counts_.lost;
      datagram[below(datagram.size(), random_)] ^= static_cast<std::byte>(1 << below(8, random_));
    }
    const Nanoseconds late{happens(shape_.faults.reordering) ? below(500'000, random_) : 0};
    time_.at(*arrival + late, [this, arrive, datagram = std::move(datagram)]() mutable {
      if (key_.is_sealed(datagram)) arrive(std::move(datagram));
    });
  }

  void send_up(std::size_t worker, std::size_t aggregator, std::span<std::byte> datagram) {
    key_.seal(datagram);
    cross(hosts_[worker].up, Buffer(datagram.begin(), datagram.end()),
          [=, this](Buffer arrived) { at_aggregator(aggregator, arrived); });
  }

  void send_down(std::size_t worker, std::size_t aggregator, std::span<std::byte> datagram) {
    key_.seal(datagram);
    cross(hosts_[worker].down, Buffer(datagram.begin(), datagram.end()), [=, this](Buffer arrived) {
      hosts_[worker].ends[aggregator]->inbox.push_back(std::move(arrived));
      wake(worker, aggregator);
    });
  }

  // What is rightly sealed is well formed. (REQUIRE would take longer than all else.)
  static Result<wire::Datagram> decoded(const Buffer& bytes) {
    auto datagram = wire::decode_datagram(bytes);
    if (!datagram) FAIL(datagram.error().message);
    return datagram;
  }

  // --- Aggregators ---

  void at_aggregator(std::size_t aggregator, const Buffer& arrived) {
    take_at_aggregator(aggregator, arrived);
    if (!happens(shape_.faults.strangers)) return;
    const Buffer strange = stranger(arrived, wire::DatagramKind::result);
    take_at_aggregator(aggregator, strange);
    Host& host = hosts_[below(hosts_.size(), random_)];
    host.ends[aggregator]->inbox.push_back(stranger(arrived, wire::DatagramKind::contribution));
  }

  void take_at_aggregator(std::size_t aggregator, const Buffer& arrived) {
    const auto datagram = decoded(arrived);
    outgoing_.clear();
    aggregators_[aggregator]->on_datagram(*datagram, outgoing_);
    for (const auto& [worker, bytes] : outgoing_) {
      if (worker != proto::kEveryWorker) {
        send_down(worker, aggregator, bytes);
        continue;
      }
      for (std::size_t each = 0; each < hosts_.size(); ++each) send_down(each, aggregator, bytes);
    }
  }

  // One that is rightly sealed, and that nobody can be waiting for.
  Buffer stranger(const Buffer& model, wire::DatagramKind kind) {
    const auto datagram = decoded(model);
    wire::DatagramHeader header = datagram->header;
    switch (below(6, random_)) {
      case 0:
        header.kind = kind;
        break;
      case 1:
        header.slot = static_cast<std::uint16_t>(shape_.pool.slots + below(9, random_));
        break;
      case 2:
        header.worker = static_cast<std::uint16_t>(shape_.pool.workers + below(9, random_));
        header.kind = wire::DatagramKind::contribution;
        break;
      case 3:
        header.round += pick({0x40000000u, 0x80000000u, 1000u, ~1000u}, random_);
        break;
      case 4:
        header.job ^= 1 + below(1000, random_);
        break;
      default:
        header.epoch += 1 + static_cast<std::uint32_t>(below(3, random_));
    }
    Buffer strange = model;
    wire::encode(header, {datagram->columns, header.columns}, strange);
    return strange;
  }

  // --- Workers ---

  void wake(std::size_t worker, std::size_t aggregator) {
    End& end = *hosts_[worker].ends[aggregator];
    if (std::exchange(end.is_woken, true)) return;
    const auto lag = worker < shape_.lags.size() ? shape_.lags[worker].count() : 0;
    const Nanoseconds late{lag == 0 ? 0 : below(static_cast<std::uint64_t>(lag), random_)};
    time_.at(time_.now() + late, [=, this] {
      hosts_[worker].ends[aggregator]->is_woken = false;
      act(worker, aggregator);
    });
  }

  void act(std::size_t number, std::size_t aggregator) {
    Host& host = hosts_[number];
    End& end = *host.ends[aggregator];
    while (!end.inbox.empty()) {
      end.worker.on_datagram(*decoded(end.inbox.front()), now());
      end.inbox.pop_front();
    }
    for (auto& [seq, failure] : end.worker.take_ended()) {
      host.ended[seq].push_back(failure);
      host.last_end = time_.now();
    }
    out_.resize(shape_.pool.datagram_bytes);
    while (const std::size_t size = end.worker.poll(out_, now())) {
      send_up(number, aggregator, std::span(out_).first(size));
    }
    if (end.worker.has_work(now())) FAIL("a worker that has work but sends nothing");
    set_timer(number, aggregator);
  }

  void set_timer(std::size_t number, std::size_t aggregator) {
    End& end = *hosts_[number].ends[aggregator];
    const auto next = end.worker.next_timer();
    const Nanoseconds due = next ? Nanoseconds(*next) : Nanoseconds::max();
    if (due >= end.timer) return;  // It is looked at earlier anyway.
    end.timer = due;
    time_.at(due, [=, this] {
      End& due_end = *hosts_[number].ends[aggregator];
      if (due_end.timer == due) due_end.timer = Nanoseconds::max();
      wake(number, aggregator);
    });
  }

  NetworkShape shape_;
  Random random_;
  wire::TagKey key_;
  VirtualTime time_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;
  std::deque<Host> hosts_;
  std::vector<typename Aggregator::Outgoing> outgoing_;
  Buffer out_;
  Counts counts_;
};

}  // namespace sparsewire::test
