// What strangers can send to those who sum by datagrams, and what a job may take: nothing gets in.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"

namespace comm_slots_strangers_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::SlotFigure;

// --- Strangers ---

Buffer sealed(const SlotJob& job, wire::DatagramHeader header, std::size_t size = 48) {
  Buffer datagram(size);
  const wire::ColumnRecord record{0, 0};
  wire::encode(header, std::span(&record, header.columns), datagram);
  const bool is_up =
      header.kind == wire::DatagramKind::contribution || header.kind == wire::DatagramKind::hello;
  (is_up ? job.keys().up : job.keys().down).seal(datagram);
  return datagram;
}

wire::DatagramHeader contribution_of(std::uint16_t worker) {
  return {.worker = worker, .job = 1, .epoch = SlotJob::kEpoch, .block = 256};
}

struct Strange {
  const char* what;
  Buffer data;
};

// What the aggregator must drop, wherever it comes from but from its worker.
std::vector<Strange> strange_datagrams(const SlotJob& job, Random& random) {
  const wire::DatagramHeader right = contribution_of(0);
  auto far_epoch = right, far_worker = right, hello = right;
  far_epoch.epoch += 1;
  far_worker.worker = 2;
  hello.kind = wire::DatagramKind::hello;
  hello.columns = 0;
  Buffer unsealed = sealed(job, right);
  unsealed[wire::kTagOffset] ^= std::byte{1};
  Buffer changed = sealed(job, right);
  changed[wire::kDatagramHeaderBytes] ^= std::byte{1};
  Buffer garbage = random_bytes(1072, random);
  const Buffer head = sealed(job, right);
  std::ranges::copy(std::span(head).first(16), garbage.begin());
  return {{"copied", sealed(job, right)},
          {"of another epoch", sealed(job, far_epoch)},
          {"of no worker", sealed(job, far_worker)},
          {"a greeting from elsewhere", sealed(job, hello)},
          {"with a wrong tag", unsealed},
          {"changed", changed},
          {"garbage behind a header", garbage}};
}

TEST_CASE("what strangers send is counted by its job and dropped") {
  Random random(23);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  const Socket stranger = bound_socket(AF_INET);
  std::uint64_t rejected = 0;
  for (const Strange& strange : strange_datagrams(job, random)) {
    CAPTURE(strange.what);
    send_to(stranger, aggregators.address(0), strange.data);
    ++rejected;
    wait_until([&] { return aggregators.counters(1).rejected >= rejected; });
    CHECK(aggregators.counters(1).rejected == rejected);
  }
  CHECK(aggregators.counters(1).contributions == 0);
  std::array<std::byte, 64> answer;
  CHECK(::recv(stranger.fd(), answer.data(), answer.size(), 0) < 0);
  check_works(job.cluster(), kLargeSum, random);
  job.cluster().close();
}

TEST_CASE("what is of no job is counted by the aggregator") {
  Random random(24);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  const Socket stranger = bound_socket(AF_INET);
  auto other_job = contribution_of(0);
  other_job.job = 2;
  for (const Buffer& data : {sealed(job, other_job), Buffer(1), Buffer(39), Buffer(9000)}) {
    send_to(stranger, aggregators.address(0), data);
  }
  wait_until([&] { return aggregators[0].stats().strange_datagrams >= 4; });
  CHECK(aggregators.counters(1).rejected == 0);
  check_works(job.cluster(), kLargeSum, random);
  job.cluster().close();
}

TEST_CASE("a job goes on while strangers send all they have") {
  Random random(25);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  const auto strange = strange_datagrams(job, random);
  std::jthread attack([&](const std::stop_token& stop) {
    const Socket stranger = bound_socket(AF_INET);
    while (!stop.stop_requested()) {
      for (const Strange& one : strange) send_to(stranger, aggregators.address(0), one.data);
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
  });
  for (int i = 0; i < 10; ++i) check_works(job.cluster(), kLargeSum, random);
  attack.request_stop();
  attack.join();
  CHECK(aggregators.counters(1).rejected > 0);
  CHECK(aggregators.counters(1).contributions == 2 * aggregators.counters(1).results);
  job.cluster().close();
}

TEST_CASE("ranks drop what their aggregator has not sealed, and what is of another job or epoch") {
  Random random(26);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  auto result = contribution_of(0);
  result.kind = wire::DatagramKind::result;
  auto other_job = result, other_epoch = result;
  other_job.job = 2;
  other_epoch.epoch = 1;
  Buffer unsealed = sealed(job, result);
  unsealed[wire::kTagOffset] ^= std::byte{1};
  const std::vector<Buffer> forged = {unsealed, sealed(job, other_job), sealed(job, other_epoch),
                                      Buffer(1), random_bytes(1072, random)};
  for (const Buffer& data : forged) send_to(aggregators.copy(0), job.address(1), data);
  wait_until([&] { return job.figure(SlotFigure::datagrams_rejected, 1) >= forged.size(); });
  check_works(job.cluster(), kLargeSum, random);
  CHECK(job.figure(SlotFigure::datagrams_rejected, 0) == 0);
  job.cluster().close();
}

// --- Memory ---

TEST_CASE("slots count for what a job may need") {
  Random random(27);
  SlotAggregators aggregators(1);
  wire::Topology topology = topology_of(2, 1, 1);
  const std::size_t streams =
      proto::Owner::memory_needed(topology) + 2 * (128 * 1024 + wire::kMaxPayload);
  SlotJob job(aggregators, 2);
  check_works(job.cluster(), kLargeSum, random);
  const std::size_t for_slots =
      proto::SlotAggregator::memory_needed({.slots = comm::kSlots, .workers = 2});
  CHECK(for_slots > 0);
  CHECK(aggregators[0].stats().memory_reserved == streams + for_slots);
  CHECK(aggregators[0].stats().memory >= for_slots);
  job.cluster().close();
  wait_until([&] { return aggregators[0].stats().memory_reserved == 0; });
}

TEST_CASE("a job whose slots would need too much is refused with what to set") {
  Random random(28);
  const std::size_t streams =
      proto::Owner::memory_needed(topology_of(2, 1, 1)) + 2 * (128 * 1024 + wire::kMaxPayload);
  SlotAggregators aggregators(1, {.job_memory = streams + 100'000});
  SlotJob job(aggregators, 2);
  Collective collective = large_collective(2, random);
  for (const OperationPtr& operation : submit_all(job.cluster(), collective)) {
    const Status failure = outcome(operation);
    check_failed(failure, ErrorCode::resources, kNoRank);
    CHECK(failure->message.find("--job-memory") != std::string::npos);
  }
}

}  // namespace comm_slots_strangers_test
