// Sums by datagrams, with all threads and sockets that they take: operations in flight, ends of all
// kinds meanwhile, and strangers.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"
#include "slot_operations.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::SlotFigure;

constexpr wire::Descriptor kLarge{DType::float32, ReduceOp::sum, 200'000};
constexpr net::Disturbance kBad{
    .loss = 0.02, .duplicate = 0.02, .reorder = 0.02, .corrupt = 0.01, .seed = 3};

using Operations = std::vector<OperationPtr>;

Operations submit_all(Cluster& cluster, Collective& collective) {
  Operations operations;
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    operations.push_back(submit(cluster, collective, rank));
  }
  return operations;
}

void check_all_done(const Operations& operations, const Collective& collective) {
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    CAPTURE(rank);
    check_done(operations[rank], collective, rank);
  }
}

Collective large_collective(std::size_t ranks, Random& random, Density density = {1}) {
  return random_collective(kLarge, ranks, 256, density, random);
}

// Once something of the operations is on its way, and, hopefully, much is not.
void await_datagrams(SlotAggregators& aggregators, std::uint64_t job, std::uint64_t count) {
  wait_until([&] { return aggregators.counters(job).contributions >= count; });
}

void check_many(SlotAggregators& aggregators, std::uint32_t ranks, const SlotSettings& settings,
                Random& random) {
  SlotJob job(aggregators, ranks, settings);
  std::deque<Collective> collectives;
  std::deque<Operations> operations;
  for (int i = 0; i < 20; ++i) {
    const wire::Descriptor descriptor{pick(kDTypes, random), pick(kOps, random),
                                      below(one_in(4, random) ? 200'000 : 3000, random)};
    collectives.push_back(
        random_collective(descriptor, ranks, 256, pick(kDensities, random), random));
    operations.push_back(submit_all(job.cluster(), collectives.back()));
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    CAPTURE(wire::describe(collectives[i].descriptor));
    check_all_done(operations[i], collectives[i]);
  }
  CHECK(job.figure(SlotFigure::datagrams_sent, 0) > 0);
  job.cluster().close();
}

TEST_CASE("many operations are in flight, on good networks and on bad ones") {
  for (const std::uint32_t ranks : {1u, 2u, 4u}) {
    for (const std::size_t owners : {1, 3}) {
      for (const bool is_bad : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(owners);
        CAPTURE(is_bad);
        Random random(10 * ranks + owners);
        const auto disturbance = is_bad ? std::optional(kBad) : std::nullopt;
        SlotAggregators aggregators(owners, {}, disturbance);
        check_many(aggregators, ranks, {.disturbance = disturbance}, random);
      }
    }
  }
}

TEST_CASE("datagrams are as large as the path takes them") {
  for (const std::uint32_t datagram_bytes : {576u, 1472u, 8972u}) {
    CAPTURE(datagram_bytes);
    Random random(datagram_bytes);
    SlotAggregators aggregators(1);
    check_many(aggregators, 2, {.datagram_bytes = datagram_bytes}, random);
  }
}

TEST_CASE("several jobs at once share an aggregator, and not their sums") {
  SlotAggregators aggregators(1);
  std::vector<std::jthread> jobs;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    jobs.emplace_back([&, number] {
      Random random(number);
      SlotJob job(aggregators, 2, {.job = number});
      for (int i = 0; i < 5; ++i) check_works(job.cluster(), kLarge, random);
      job.cluster().close();
    });
  }
}

TEST_CASE("jobs with the same number follow each other, from other addresses") {
  SlotAggregators aggregators(2);
  Random random(1);
  for (int i = 0; i < 4; ++i) {
    SlotJob job(aggregators, 2 + static_cast<std::uint32_t>(i % 2));
    check_works(job.cluster(), kLarge, random);
    job.cluster().close();
    wait_until([&] { return aggregators[0].stats().jobs + aggregators[1].stats().jobs == 0; });
  }
}

// --- Fixed point ---

constexpr SlotSettings kFixed{.arithmetic = proto::Arithmetic::fixed, .disturbance = kBad};

Collective fixed_collective(const wire::Descriptor& descriptor, std::uint16_t ranks,
                            Random& random) {
  const auto arithmetic = proto::Arithmetic::fixed;
  return random_operation({.workers = ranks}, descriptor, arithmetic, {0.7}, random).collective;
}

TEST_CASE("sums in fixed point are those of plain arithmetic") {
  Random random(20);
  SlotAggregators aggregators(2, {}, kBad);
  SlotJob job(aggregators, 3, kFixed);
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::int32}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      if (dtype == DType::int32 && op == ReduceOp::avg) continue;
      CAPTURE(name_of(dtype));
      Collective collective = fixed_collective({dtype, op, 70'001}, 3, random);
      check_all_done(submit_all(job.cluster(), collective), collective);
    }
  }
  job.cluster().close();
}

TEST_CASE("what is not finite fails its own operation on all ranks, and no other") {
  Random random(21);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 3, kFixed);
  Collective before = fixed_collective(kLarge, 3, random);
  Collective bad{kLarge, {}, {}};
  for (int rank = 0; rank < 3; ++rank) {
    Buffer input(4 * kLarge.count);
    if (rank == 1) store_pattern(input.data(), 150'000, DType::float32, 0x7f800000);
    bad.ranks.emplace_back(std::move(input), true);
  }
  Collective after = fixed_collective(kLarge, 3, random);
  const Operations good = submit_all(job.cluster(), before);
  const Operations failing = submit_all(job.cluster(), bad);
  const Operations last = submit_all(job.cluster(), after);
  for (const OperationPtr& operation : failing) {
    check_failed(outcome(operation), ErrorCode::input, kNoRank);
  }
  check_all_done(good, before);
  check_all_done(last, after);
  job.cluster().close();
}

// --- Ends of all kinds, with datagrams on their way ---

// So slow that operations take some ten milliseconds.
constexpr net::Disturbance kSlow{
    .loss = 0.02, .reorder = 0.02, .delay = net::Microseconds{1500}, .seed = 4};
constexpr std::uint32_t kRanks = 3;

// A job in the midst of a few operations, whose memory goes as soon as they have ended.
class Busy {
 public:
  explicit Busy(std::uint64_t seed, std::size_t owners = 2)
      : random_(seed), aggregators_(owners, {}, kSlow) {
    job_.emplace(aggregators_, kRanks, SlotSettings{.disturbance = kSlow});
    for (int i = 0; i < 3; ++i) {
      collectives_.push_back(large_collective(kRanks, random_));
      operations_.push_back(submit_all(job_->cluster(), collectives_.back()));
    }
    await_datagrams(aggregators_, 1, 1 + below(1500, random_));
  }

  Random& random() { return random_; }
  SlotJob& job() { return *job_; }
  SlotAggregators& aggregators() { return aggregators_; }

  // Of each operation, on the ranks that can still be asked. Those that were quick have none.
  template <typename Check>
  void check_ends(Check check, std::size_t absent = kRanks) {
    while (!operations_.empty()) {
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        if (rank == absent) continue;
        const Status failure = outcome(operations_.front()[rank]);
        if (failure) check(*failure);
      }
      if (absent < kRanks) (void)outcome(operations_.front()[absent]);
      operations_.pop_front();
      collectives_.pop_front();
    }
  }

  void check_next_job() {
    job_.reset();
    for (std::size_t i = 0; i < aggregators_.size(); ++i) {
      wait_until([&] { return aggregators_[i].stats().workers == 0; });
      CHECK(aggregators_[i].stats().memory_reserved == 0);
    }
    SlotJob next(aggregators_, 2);
    check_works(next.cluster(), kLarge, random_);
    next.cluster().close();
  }

 private:
  Random random_;
  SlotAggregators aggregators_;
  std::optional<SlotJob> job_;
  std::deque<Collective> collectives_;
  std::deque<Operations> operations_;
};

TEST_CASE("an abort ends everything on every rank") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Busy busy(seed);
    const auto aborting = below(kRanks, busy.random());
    busy.job().cluster()[aborting].abort("enough");
    busy.check_ends([&](const Error& failure) {
      check_failed(failure, ErrorCode::aborted, static_cast<Rank>(aborting));
    });
    busy.check_next_job();
  }
}

TEST_CASE("a rank may close or go with operations in flight, and the others learn of it") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Busy busy(100 + seed);
    const auto going = below(kRanks, busy.random());
    seed % 2 ? busy.job().cluster().destroy(going)
             : busy.job().cluster()[going].close(std::chrono::seconds{1});
    busy.check_ends([&](const Error& failure) {
      check_failed(failure, ErrorCode::aborted, static_cast<Rank>(going));
    });
    busy.check_next_job();
  }
}

TEST_CASE("all ranks may go at once") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    Busy busy(200 + seed);
    busy.job().cluster().at_once([&](std::size_t rank) { busy.job().cluster().destroy(rank); });
    busy.check_ends([&](const Error& failure) { CHECK(failure.code == ErrorCode::aborted); });
    busy.check_next_job();
  }
}

TEST_CASE("a rank whose connections end is named to the others") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Busy busy(300 + seed);
    const auto victim = below(kRanks, busy.random());
    busy.job().cut(victim);
    busy.check_ends(
        [&](const Error& failure) {
          check_failed(failure, ErrorCode::peer_lost, static_cast<Rank>(victim));
        },
        victim);
    busy.check_next_job();
  }
}

TEST_CASE("aggregators that go end everything") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    Busy busy(400 + seed);
    busy.aggregators().go();
    busy.check_ends([](const Error& failure) {
      check_failed(failure, ErrorCode::peer_lost, kNoRank);
      CHECK(failure.message.find("aggregator") != std::string::npos);
    });
  }
}

// The gate is passed by connections, so this is the only way in which a firewall shows.
TEST_CASE("where no datagram passes any more, a deadline ends the operation") {
  Random random(22);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2, {.disturbance = net::Disturbance{.loss = 1}});
  Collective collective = large_collective(2, random);
  Operations operations;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    comm::Operation::Arguments limited = arguments_of(collective, rank);
    limited.deadline = comm::Clock::now() + std::chrono::milliseconds{300};
    operations.push_back(job.cluster()[rank].submit(limited));
  }
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == ErrorCode::timeout);
  }
}

// --- Strangers ---

Buffer sealed(const SlotJob& job, wire::DatagramHeader header, std::size_t size = 48) {
  Buffer datagram(size);
  const wire::ColumnRecord record{0, 0};
  wire::encode(header, std::span(&record, header.columns), datagram);
  job.key().seal(datagram);
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
  check_works(job.cluster(), kLarge, random);
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
  check_works(job.cluster(), kLarge, random);
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
  for (int i = 0; i < 10; ++i) check_works(job.cluster(), kLarge, random);
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
  check_works(job.cluster(), kLarge, random);
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
  check_works(job.cluster(), kLarge, random);
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

}  // namespace
