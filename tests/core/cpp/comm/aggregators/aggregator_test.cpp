// Dedicated aggregators: many jobs at once and one after the other, and workers that go.
#include "comm/aggregators/aggregator.hpp"

#include <doctest/doctest.h>

#include "cluster.hpp"
#include "comm/aggregators/aggregator_job.hpp"

namespace aggregator_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::AggregatorJob;

constexpr wire::Descriptor kLarge{DType::float32, ReduceOp::sum, 100'000};

using Aggregators = std::deque<comm::Aggregator>;

Cluster join(Aggregators& aggregators, std::uint64_t job, std::uint32_t world_size,
             std::uint32_t lanes, Rank absent = kNoRank) {
  const auto owners = static_cast<std::uint32_t>(aggregators.size());
  const wire::Topology topology = topology_of(world_size, lanes, owners);
  Cluster cluster(topology, true, dedicated_mesh(topology, job, aggregators));
  cluster.start_but(absent);
  return cluster;
}

// Workers that left are forgotten soon, but not at once.
void wait_until_idle(const Aggregators& aggregators) {
  for (const comm::Aggregator& aggregator : aggregators) {
    wait_until([&] { return aggregator.stats().workers == 0 && aggregator.stats().jobs == 0; });
  }
}

TEST_CASE("aggregators serve several jobs at once") {
  for (const std::uint32_t owners : {1u, 2u, 3u}) {
    CAPTURE(owners);
    Aggregators aggregators(owners);
    Cluster a = join(aggregators, 1, 3, 2);
    Cluster b = join(aggregators, 2, 2, 1);
    std::jthread other([&] {
      Random random(1);
      for (int i = 0; i < 5; ++i) check_works(b, {DType::int64, ReduceOp::sum, 50'000}, random);
      b.close();
    });
    Random random(2);
    for (int i = 0; i < 5; ++i) {
      check_works(a, {pick(kDTypes, random), pick(kOps, random), below(100'000, random)}, random);
    }
    other.join();
    a.close();
    wait_until_idle(aggregators);
    CHECK(aggregators[0].stats().jobs_served == 2);
  }
}

TEST_CASE("jobs come one after the other, also with the same number") {
  Aggregators aggregators(2);
  Random random(3);
  for (int i = 0; i < 6; ++i) {
    Cluster cluster = join(aggregators, 7, 2 + static_cast<std::uint32_t>(i % 2), 1);
    check_works(cluster, kLarge, random);
    cluster.close();
    wait_until_idle(aggregators);
  }
  CHECK(aggregators[0].stats().jobs_served == 6);
  CHECK(aggregators[0].stats().bytes_received > 0);
}

TEST_CASE("a mismatch ends the operation and not the job") {
  Aggregators aggregators(2);
  Random random(4);
  Cluster cluster = join(aggregators, 1, 2, 2);
  Collective usual = random_collective(kLarge, 2, 256, {1}, random);
  Collective odd = random_collective({DType::float32, ReduceOp::sum, 99'999}, 2, 256, {1}, random);
  const OperationPtr a = submit(cluster, usual, 0);
  const OperationPtr b = submit(cluster, odd, 1);
  for (const OperationPtr& operation : {a, b}) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::mismatch);
  }
  check_works(cluster, kLarge, random);
  cluster.close();
}

TEST_CASE("a worker that dies is named to the others, and other jobs go on") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto victim = static_cast<Rank>(below(3, random));
    Aggregators aggregators(2);
    Collective collective = random_collective(kLarge, 3, 256, {0.5}, random);
    Cluster bystanders = join(aggregators, 2, 2, 1);
    Cluster cluster = join(aggregators, 1, 3, 1 + seed % 2, victim);
    {
      MuteRank mute(cluster.topology(), victim, true, cluster.sockets_of(victim));
      std::vector<OperationPtr> operations;
      for (const std::size_t rank : cluster.present()) {
        operations.push_back(submit(cluster, collective, rank));
      }
      std::this_thread::sleep_for(std::chrono::microseconds{below(1000, random)});
      mute.die();
      for (const OperationPtr& operation : operations) {
        check_failed(outcome(operation), ErrorCode::peer_lost, victim);
      }
    }
    check_works(bystanders, kLarge, random);
    bystanders.close();
    for (const std::size_t rank : cluster.present()) cluster.destroy(rank);
    wait_until_idle(aggregators);
  }
}

// A worker of a job of two, and the job's end of its connection, which can be written at once.
struct Connected {
  Connected(AggregatorJob& job, Rank rank) {
    SocketPair pair = connected_pair();
    const AggregatorJob::Identity identity{.job = 1, .world_size = 2, .rank = rank, .lane = 0};
    job.add(std::make_unique<AggregatorJob::WorkerChannel>(identity, pair.a.release()));
    at_job = &job.channels().back()->connection;
    at_job->note_ready(false, true);
    worker = std::move(pair.b);
  }

  net::Connection* at_job;
  Socket worker;
};

Error read_fault(const Socket& socket) {
  std::array<std::byte, 4096> data;
  const ssize_t got = ::read(socket.fd(), data.data(), data.size());
  REQUIRE(got > static_cast<ssize_t>(wire::kHeaderBytes));
  const auto all = std::span(data).first(static_cast<std::size_t>(got));
  const auto header = wire::decode_header(all.first<wire::kHeaderBytes>());
  REQUIRE(header);
  Status fault;
  const Bytes payload = Bytes::borrowed(all.subspan(wire::kHeaderBytes));
  REQUIRE(!wire::take_fault({*header, payload}, [&](const Error& error) { fault = error; }));
  return *fault;
}

// Results find the connection broken before its last words are read.
TEST_CASE("a worker that says why it goes is not called lost") {
  comm::Budget budget({});
  AggregatorJob job(budget);
  Connected going(job, 0);
  Connected other(job, 1);
  const wire::Message result{{.kind = wire::FrameKind::heartbeat}, {}};
  send(going.worker,
       wire::fault_message(wire::FrameKind::abort, {ErrorCode::aborted, 0, "enough"}));
  going.worker.close();
  going.at_job->send(result);  // The first finds a kernel that takes it, and is answered.
  REQUIRE(!going.at_job->flush());
  going.at_job->note_ready(false, true);
  going.at_job->send(result);
  job.serve(comm::Clock::now(), false);
  const Error told = read_fault(other.worker);
  CAPTURE(told.message);
  CHECK(told.code == ErrorCode::aborted);
  CHECK(told.rank == 0);
}

TEST_CASE("a worker that has left is named by later operations") {
  Aggregators aggregators(1);
  Random random(5);
  Cluster cluster = join(aggregators, 1, 2, 1);
  check_works(cluster, kLarge, random);
  cluster[1].close(kPatience);
  Collective collective = random_collective(kLarge, 2, 256, {1}, random);
  check_failed(outcome(submit(cluster, collective, 0)), ErrorCode::peer_lost, 1);
}

TEST_CASE("an abort reaches all workers of the job") {
  Aggregators aggregators(2);
  Random random(6);
  Cluster cluster = join(aggregators, 1, 3, 2);
  Collective collective = random_collective(kLarge, 3, 256, {1}, random);
  const OperationPtr a = submit(cluster, collective, 0);
  const OperationPtr b = submit(cluster, collective, 2);
  cluster[1].abort("enough");
  for (const OperationPtr& operation : {a, b}) {
    check_failed(outcome(operation), ErrorCode::aborted, 1);
  }
}

TEST_CASE("an aggregator that goes is named as such") {
  Random random(7);
  Collective collective = random_collective(kLarge, 2, 256, {1}, random);
  Aggregators aggregators(1);
  Cluster cluster = join(aggregators, 1, 2, 1);
  const OperationPtr operation = submit(cluster, collective, 0);
  aggregators.clear();
  const Status failure = outcome(operation);
  check_failed(failure, ErrorCode::peer_lost, kNoRank);
  CHECK(failure->message.find("aggregator") != std::string::npos);
}

// --- Workers that do not fit ---

Buffer hello_bytes(const wire::Hello& hello) {
  const Bytes payload = wire::encode_hello(hello);
  Buffer bytes(wire::kHeaderBytes + payload.size());
  wire::encode({.kind = wire::FrameKind::hello, .payload = wire::kTopologyBytes},
               std::span(bytes).first<wire::kHeaderBytes>());
  std::ranges::copy(payload.view(), bytes.begin() + wire::kHeaderBytes);
  return bytes;
}

// Rank 1 of a job of two, as raw bytes on a socket; rank 0 comes first, so it decides what is
// right.
void check_breaks_job(const Buffer& bytes) {
  Random random(8);
  Collective collective = random_collective(kLarge, 2, 256, {1}, random);
  Aggregators aggregators(1);
  Cluster cluster = join(aggregators, 1, 2, 1, 1);
  const OperationPtr operation = submit(cluster, collective, 0);
  wait_until([&] { return aggregators[0].stats().bytes_received > hello_bytes({}).size(); });
  const Socket& socket = cluster.sockets_of(1)[0][0];
  REQUIRE(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
  check_failed(outcome(operation), ErrorCode::protocol, 1);
}

TEST_CASE("a worker that breaks the protocol is named to the others") {
  check_breaks_job(Buffer(64, std::byte{0xee}));
  const wire::Topology right = topology_of(2, 1, 1);
  wire::Topology other_world = right;
  other_world.world_size = 3;
  wire::Topology other_block = right;
  other_block.block = 128;
  check_breaks_job(hello_bytes({other_world, 0, 0}));
  check_breaks_job(hello_bytes({other_block, 0, 0}));
  Buffer twice = hello_bytes({right, 0, 0});
  const Buffer again = twice;
  twice.insert(twice.end(), again.begin(), again.end());
  check_breaks_job(twice);
  Buffer no_hello(wire::kHeaderBytes);
  wire::encode({.kind = wire::FrameKind::cancel}, std::span(no_hello).first<wire::kHeaderBytes>());
  check_breaks_job(no_hello);
}

TEST_CASE("a worker that joins a job which is already broken learns of it") {
  Random random(9);
  Collective collective = random_collective(kLarge, 3, 256, {1}, random);
  Aggregators aggregators(1);
  const wire::Topology topology = topology_of(3, 1, 1);
  std::vector<Sockets> mesh = dedicated_mesh(topology, 1, aggregators);
  Sockets late = std::move(mesh[2]);
  Cluster cluster(topology, true, std::move(mesh));
  comm::Communicator first(topology, 0, true, released(cluster.sockets_of(0)));
  cluster.sockets_of(1)[0][0].close();
  check_failed(outcome(first.submit(arguments_of(collective, 0))), ErrorCode::peer_lost, 1);

  SocketPair pair = connected_pair();
  aggregators[0].add_worker({1, 3, 2, 0}, pair.b.release());
  comm::Communicator second(topology, 2, true, std::vector<std::vector<int>>{{pair.a.release()}});
  check_failed(outcome(second.submit(arguments_of(collective, 2))), ErrorCode::peer_lost, 1);
}

}  // namespace aggregator_test
