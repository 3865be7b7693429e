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
#include "slot_faults.hpp"
#include "virtual_time.hpp"
#include "wire/tag.hpp"

namespace sparsewire::test {

// What a UDP datagram needs on a link beside its content: Ethernet, IPv4 and UDP.
inline constexpr std::size_t kDatagramOverhead = 66;

struct NetworkShape {
  proto::SlotPool pool;  // whose workers are all ranks
  std::uint32_t aggregators = 1;
  LinkShape link;  // of each worker, each way
  Faults faults;
  std::vector<Nanoseconds> lags = {};  // per worker: it looks at what has come up to so much later
  // Workers of each rack, which has an aggregator of its own; none: all workers speak to the root.
  std::vector<std::uint16_t> racks = {};
  LinkShape trunk = {};  // of each rack's aggregator to the root, each way
};

template <typename Worker = proto::SlotWorker, typename Aggregator = proto::SlotAggregator>
class SlotNetwork {
 public:
  struct Counts {
    std::uint64_t datagrams = 0;  // given to a link
    std::uint64_t lost = 0;       // those that did not arrive, or not whole
    std::uint64_t bytes_up = 0;   // from workers, on the wire
  };

  SlotNetwork(const NetworkShape& shape, std::uint64_t seed)
      : shape_(shape),
        random_(seed),
        key_(random_bytes(wire::kTagKeyBytes, random_), shape.pool.datagram_bytes) {
    const auto racks = static_cast<std::uint16_t>(shape.racks.size());
    for (std::uint16_t rack = 0; rack < racks; ++rack) {
      racks_.push_back({Link(shape.trunk), Link(shape.trunk), {}});
      const proto::SlotPool pool = pool_of(shape.racks[rack]);
      for (std::uint32_t i = 0; i < shape.aggregators; ++i) {
        racks_.back().aggregators.push_back(std::make_unique<Aggregator>(pool, rack));
      }
      for (std::uint16_t worker = 0; worker < pool.workers; ++worker) add_host(pool, worker, rack);
    }
    const proto::SlotPool pool = pool_of(racks != 0 ? racks : shape.pool.workers);
    for (std::uint32_t i = 0; i < shape.aggregators; ++i) {
      aggregators_.push_back(std::make_unique<Aggregator>(pool));
    }
    for (std::uint16_t worker = 0; racks == 0 && worker < pool.workers; ++worker) {
      add_host(pool, worker, kNoRack);
    }
  }

  VirtualTime& time() { return time_; }
  Link& up(std::size_t worker) { return hosts_[worker].up; }
  Link& down(std::size_t worker) { return hosts_[worker].down; }
  Worker& worker(std::size_t worker, std::size_t aggregator = 0) {
    return hosts_[worker].ends[aggregator]->worker;
  }
  Aggregator& aggregator(std::size_t index = 0) { return *aggregators_[index]; }
  Aggregator& rack(std::size_t rack, std::size_t index = 0) {
    return *racks_[rack].aggregators[index];
  }
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

  // From then on it does nothing; what comes for it stays in its receive buffer.
  void freeze(std::size_t worker) { hosts_[worker].is_frozen = true; }
  void thaw(std::size_t worker) {
    hosts_[worker].is_frozen = false;
    for (std::uint32_t i = 0; i < shape_.aggregators; ++i) wake(worker, i);
  }
  void set_faults(const Faults& faults) { shape_.faults = faults; }

  // Until all is done, or for so long.
  void run(Nanoseconds patience = std::chrono::minutes{10}) { time_.run(time_.now() + patience); }

  // How often the operation ended at this worker: once at each aggregator.
  std::size_t ends(std::size_t worker, std::uint64_t seq) const {
    const auto at = hosts_[worker].ended.find(seq);
    return at == hosts_[worker].ended.end() ? 0 : at->second;
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
    std::size_t rack;
    std::uint16_t number;  // of the worker, where its aggregator is
    std::vector<std::unique_ptr<End>> ends = {};
    std::map<std::uint64_t, std::size_t> ended = {};
    Nanoseconds last_end{0};
    bool is_frozen = false;
  };

  struct Rack {
    Link up;
    Link down;
    std::vector<std::unique_ptr<Aggregator>> aggregators;
  };
  static constexpr std::size_t kNoRack = SIZE_MAX;

  proto::SlotPool pool_of(std::uint16_t workers) const {
    proto::SlotPool pool = shape_.pool;
    pool.world_size = pool.workers;
    pool.workers = workers;
    return pool;
  }

  void add_host(const proto::SlotPool& pool, std::uint16_t worker, std::size_t rack) {
    hosts_.push_back({Link(shape_.link), Link(shape_.link), rack, worker});
    for (std::uint32_t i = 0; i < shape_.aggregators; ++i) {
      hosts_.back().ends.push_back(std::make_unique<End>(pool, worker));
    }
  }

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
    Host& host = hosts_[worker];
    counts_.bytes_up += datagram.size() + kDatagramOverhead;
    cross(host.up, Buffer(datagram.begin(), datagram.end()),
          [=, this, &host](Buffer arrived) { at_aggregator(host.rack, aggregator, arrived); });
  }

  void send_down(std::size_t worker, std::size_t aggregator, std::span<std::byte> datagram) {
    key_.seal(datagram);
    cross(hosts_[worker].down, Buffer(datagram.begin(), datagram.end()), [=, this](Buffer arrived) {
      hosts_[worker].ends[aggregator]->inbox.push_back(std::move(arrived));
      wake(worker, aggregator);
    });
  }

  // --- Aggregators ---

  void at_aggregator(std::size_t rack, std::size_t aggregator, const Buffer& arrived) {
    take_at_aggregator(rack, aggregator, arrived, &Aggregator::on_datagram);
    if (!happens(shape_.faults.strangers)) return;
    const Buffer strange = stranger(arrived, wire::DatagramKind::result);
    take_at_aggregator(rack, aggregator, strange, &Aggregator::on_datagram);
    take_at_aggregator(rack, aggregator, stranger(arrived, wire::DatagramKind::contribution),
                       &Aggregator::on_parent);
    Host& host = hosts_[below(hosts_.size(), random_)];
    host.ends[aggregator]->inbox.push_back(stranger(arrived, wire::DatagramKind::contribution));
  }

  template <typename Take>
  void take_at_aggregator(std::size_t rack, std::size_t aggregator, const Buffer& arrived,
                          Take take) {
    const auto datagram = wire::decode_datagram(arrived);
    REQUIRE(datagram);
    auto& at = rack == kNoRack ? aggregators_[aggregator] : racks_[rack].aggregators[aggregator];
    outgoing_.clear();
    ((*at).*take)(*datagram, outgoing_);
    for (const auto& [to, bytes] : outgoing_) {
      if (to == proto::kParent) {
        send_to_root(rack, aggregator, bytes);
      } else if (rack == kNoRack && !racks_.empty()) {
        send_to_racks(to, aggregator, bytes);
      } else {
        send_to_workers(rack, to, aggregator, bytes);
      }
    }
  }

  void send_to_workers(std::size_t rack, std::uint16_t worker, std::size_t aggregator,
                       std::span<std::byte> datagram) {
    for (std::size_t each = 0; each < hosts_.size(); ++each) {
      const bool is_meant = worker == proto::kEveryWorker || worker == hosts_[each].number;
      if (is_meant && hosts_[each].rack == rack) send_down(each, aggregator, datagram);
    }
  }

  void send_to_root(std::size_t rack, std::size_t aggregator, std::span<std::byte> datagram) {
    key_.seal(datagram);
    cross(racks_[rack].up, Buffer(datagram.begin(), datagram.end()),
          [=, this](Buffer arrived) { at_aggregator(kNoRack, aggregator, arrived); });
  }

  void send_to_racks(std::uint16_t to, std::size_t aggregator, std::span<std::byte> datagram) {
    key_.seal(datagram);
    for (std::size_t rack = 0; rack < racks_.size(); ++rack) {
      if (to != proto::kEveryWorker && to != rack) continue;
      cross(racks_[rack].down, Buffer(datagram.begin(), datagram.end()), [=, this](Buffer arrived) {
        take_at_aggregator(rack, aggregator, arrived, &Aggregator::on_parent);
      });
    }
  }

  Buffer stranger(const Buffer& model, wire::DatagramKind kind) {
    return test::stranger(shape_.pool, model, kind, random_);
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
    if (host.is_frozen) return;
    End& end = *host.ends[aggregator];
    while (!end.inbox.empty()) {
      const auto datagram = wire::decode_datagram(end.inbox.front());
      REQUIRE(datagram);
      end.worker.on_datagram(*datagram, now());
      end.inbox.pop_front();
    }
    for (const std::uint64_t seq : end.worker.take_ended()) {
      ++host.ended[seq];
      host.last_end = time_.now();
    }
    out_.resize(shape_.pool.datagram_bytes);
    while (const std::size_t size = end.worker.poll(out_, now())) {
      send_up(number, aggregator, std::span(out_).first(size));
    }
    REQUIRE_FALSE(end.worker.has_work(now()));
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
  std::deque<Rack> racks_;
  std::vector<typename Aggregator::Outgoing> outgoing_;
  Buffer out_;
  Counts counts_;
};

}  // namespace sparsewire::test
