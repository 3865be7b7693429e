// Several flows from a worker to an aggregator: each slot goes by its own, both ways, and nothing
// of it is taken by another.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"

namespace comm_slots_flows_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::SlotFigure;

TEST_CASE("sums are exact by any number of flows, whatever gets lost") {
  Random random(51);
  const net::Disturbance lossy{.loss = 0.02, .duplicate = 0.02, .reorder = 0.05, .seed = 3};
  for (const std::uint16_t flows : {1u, 2u, 4u, 8u}) {
    for (const bool loses : {false, true}) {
      CAPTURE(flows);
      SlotAggregators aggregators(2);
      SlotJob job(aggregators, 3,
                  {.disturbance = loses ? std::optional(lossy) : std::nullopt, .flows = flows});
      for (int i = 0; i < 3; ++i) check_works(job.cluster(), kLargeSum, random);
      CHECK(job.figure(SlotFigure::datagrams_sent, 0) > 0);
      CHECK(aggregators.counters(1).rejected == 0);
      job.cluster().close();
    }
  }
}

// --- One job at its aggregator ---

constexpr std::uint16_t kWorkers = 2;

Buffer hello_of(std::uint16_t worker, std::uint16_t flow, std::uint16_t flows,
                const wire::TagKey& key) {
  Buffer hello(64);
  wire::encode_greeting(
      {.kind = wire::DatagramKind::hello,
       .worker = worker,
       .slot = wire::first_slot_of(flow),
       .columns = 0,
       .job = 1,
       .epoch = SlotJob::kEpoch,
       .round = 1},
      {.workers = kWorkers, .world_size = kWorkers, .datagram_bytes = 1472, .flows = flows}, hello);
  key.seal(hello);
  return hello;
}

// A job's slots, and the sockets of its workers' flows.
class FlowingSlots {
 public:
  explicit FlowingSlots(std::uint16_t flows)
      : flows_(flows),
        slots_(1, kWorkers, {SlotJob::kEpoch, std::make_shared<wire::WayKeys>(keys_)}),
        socket_(bound_socket(AF_INET).release()) {
    for (std::uint16_t flow = 0; flow < flows; ++flow) {
      for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
        ends_.push_back(bound_socket(AF_INET));
        CHECK(is_taken(hello(worker, flow, flows), worker, flow));
      }
    }
    auto topology = topology_of(kWorkers, 1, 1);
    topology.datagram_bytes = 1472;
    slots_.begin(topology);
    await_answers();
  }

  Buffer hello(std::uint16_t worker, std::uint16_t flow, std::uint16_t flows) const {
    return hello_of(worker, flow, flows, keys_.up);
  }

  Buffer contribution(std::uint16_t worker, std::uint16_t slot) const {
    Buffer datagram(wire::datagram_head(1));
    const wire::ColumnRecord record{};
    wire::encode({.worker = worker, .slot = slot, .job = 1, .epoch = SlotJob::kEpoch, .block = 256},
                 std::span(&record, 1), datagram);
    keys_.up.seal(datagram);
    return datagram;
  }

  // Whether a datagram is taken that comes from this flow of this worker.
  bool is_taken(Buffer datagram, std::uint16_t worker, std::uint16_t flow) {
    const std::uint64_t before = slots_.counters().rejected;
    slots_.on_datagram(datagram, address_of(end(worker, flow).fd()), socket_);
    socket_.flush(kAnyTime);
    return slots_.counters().rejected == before;
  }

  const Socket& end(std::uint16_t worker, std::uint16_t flow) const {
    return ends_[flow * kWorkers + worker];
  }

  // The kind and slot of what has come there, if anything.
  std::optional<std::pair<wire::DatagramKind, std::uint16_t>> came_to(std::uint16_t worker,
                                                                      std::uint16_t flow) const {
    Buffer answer(2048);
    const ssize_t size = ::recv(end(worker, flow).fd(), answer.data(), answer.size(), 0);
    if (size < 0) return {};
    answer.resize(static_cast<std::size_t>(size));
    const wire::DatagramHeader header = wire::decode_datagram(answer)->header;
    return std::pair(header.kind, header.slot);
  }

 private:
  void await_answers() const {
    for (std::uint16_t flow = 0; flow < flows_; ++flow) {
      for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
        CHECK(came_to(worker, flow) ==
              std::pair(wire::DatagramKind::welcome, wire::first_slot_of(flow)));
      }
    }
  }

  const std::uint16_t flows_;
  const wire::WayKeys keys_ = keys_of(1, 0, 1472);
  comm::JobSlots slots_;
  net::UdpSocket socket_;
  std::vector<Socket> ends_;
};

TEST_CASE("a slot's contributions are taken from its flow alone, and its results go there") {
  for (const std::uint16_t flows : {2, 3, 8}) {
    FlowingSlots slots(flows);
    for (const std::uint16_t slot : {0, 7, 8, 30, 127}) {
      CAPTURE(flows);
      CAPTURE(slot);
      const std::uint16_t own = wire::flow_of(slot, flows);
      const auto other = static_cast<std::uint16_t>((own + 1) % flows);
      CHECK_FALSE(slots.is_taken(slots.contribution(0, slot), 0, other));
      CHECK_FALSE(slots.is_taken(slots.contribution(0, slot), 1, own));
      CHECK(slots.is_taken(slots.contribution(0, slot), 0, own));
      CHECK(slots.is_taken(slots.contribution(1, slot), 1, own));
      for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
        CHECK(slots.came_to(worker, own) == std::pair(wire::DatagramKind::result, slot));
        CHECK_FALSE(slots.came_to(worker, other));
      }
      CHECK(slots.is_taken(slots.contribution(1, slot), 1, own));
      CHECK(slots.came_to(1, own) == std::pair(wire::DatagramKind::result, slot));
      CHECK_FALSE(slots.came_to(0, own));
    }
  }
}

TEST_CASE("workers that say otherwise how many flows they have are not taken") {
  FlowingSlots slots(2);
  for (const std::uint16_t flows : {1, 3, 4}) {
    CHECK_FALSE(slots.is_taken(slots.hello(0, 0, flows), 0, 0));
  }
  CHECK_FALSE(slots.is_taken(slots.hello(0, 2, 2), 0, 0));
}

TEST_CASE("a job that has begun before anybody greeted takes greetings of one flow") {
  const auto keys = std::make_shared<wire::WayKeys>(keys_of(1, 0, 1472));
  comm::JobSlots slots(1, kWorkers, {SlotJob::kEpoch, keys});
  net::UdpSocket socket(bound_socket(AF_INET).release());
  auto topology = topology_of(kWorkers, 1, 1);
  topology.datagram_bytes = 1472;
  slots.begin(topology);
  const Socket here = bound_socket(AF_INET);
  for (const std::uint16_t flows : {std::uint16_t{2}, std::uint16_t{1}}) {
    Buffer hello = hello_of(1, 0, flows, keys->up);
    slots.on_datagram(hello, address_of(here.fd()), socket);
    CHECK(slots.counters().rejected == 1);
  }
}

// --- Flows that do not pass ---

TEST_CASE("where one flow passes no more, every rank is told which, within the peer timeout") {
  Random random(52);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2,
              {.peer_timeout = std::chrono::milliseconds{1000}, .flows = 4, .blocked = 2});
  Collective collective = large_collective(2, random);
  const Operations operations = submit_all(job.cluster(), collective);
  const std::string port = std::to_string(job.address(0, 2).port);
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == ErrorCode::unreachable);
    CHECK(failure->message.find("rank 0: ") != std::string::npos);
    CHECK(failure->message.find("by flow 3 of 4, from UDP port " + port) != std::string::npos);
    CHECK(failure->message.find("other flows pass") != std::string::npos);
    CHECK(failure->message.find("SPARSEWIRE_FLOWS=1") != std::string::npos);
  }
}

TEST_CASE("where no flow passes any more, none is blamed alone") {
  Random random(53);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2,
              {.disturbance = net::Disturbance{.loss = 1},
               .peer_timeout = std::chrono::milliseconds{1000},
               .flows = 4});
  Collective collective = large_collective(2, random);
  for (const OperationPtr& operation : submit_all(job.cluster(), collective)) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->message.find("no longer pass, although its connection") != std::string::npos);
    CHECK(failure->message.find("look at the firewall") != std::string::npos);
  }
}

TEST_CASE("ranks drop results that come by another flow than their slot's") {
  Random random(54);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2, {.flows = 2});
  Buffer result(wire::datagram_head(1));
  const wire::ColumnRecord record{};
  wire::encode({.kind = wire::DatagramKind::result,
                .slot = 8,
                .job = 1,
                .epoch = SlotJob::kEpoch,
                .block = 256},
               std::span(&record, 1), result);
  job.keys().down.seal(result);
  send_to(aggregators.copy(0), job.address(1, 0), result);
  wait_until([&] { return job.figure(SlotFigure::datagrams_rejected, 1) == 1; });
  check_works(job.cluster(), kLargeSum, random);
  job.cluster().close();
}

}  // namespace comm_slots_flows_test
