// What workers cannot do to a dedicated aggregator: take more than was agreed, stay without a word,
// or bring its thread down. Another job goes on meanwhile, every time.
#include <doctest/doctest.h>

#include <fstream>

#include "cluster.hpp"

namespace aggregator_limits_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::AggregatorLimits;

constexpr wire::Descriptor kLarge{DType::float32, ReduceOp::sum, 100'000};
constexpr std::chrono::milliseconds kSoon{100};

// An aggregator that serves a job of its own, which must not notice what is done to it.
class Besieged {
 public:
  explicit Besieged(const AggregatorLimits& limits = {}) {
    aggregators_.emplace_back(limits);
    const wire::Topology topology = topology_of(2, 1, 1);
    bystanders_.emplace(topology, true, dedicated_mesh(topology, 1, aggregators_));
    bystanders_->start_but(kNoRank);
    check_works(*bystanders_, kLarge, random_);
  }
  ~Besieged() {
    check_works(*bystanders_, kLarge, random_);
    bystanders_->close();
    wait_until([&] { return aggregator().stats().workers == 0; });
    CHECK(aggregator().stats().memory_reserved == 0);
  }

  comm::Aggregator& aggregator() { return aggregators_.front(); }
  Cluster join(const wire::Topology& topology, Rank absent = kNoRank) {
    Cluster cluster(topology, true, dedicated_mesh(topology, 2, aggregators_));
    cluster.start_but(absent);
    return cluster;
  }
  // A worker of job 2, as raw bytes on a socket.
  Socket intrude(Rank rank = 0, std::uint32_t world_size = 2) {
    SocketPair pair = connected_pair();
    aggregator().add_worker({2, world_size, rank, 0}, pair.b.release());
    return std::move(pair.a);
  }

 private:
  std::deque<comm::Aggregator> aggregators_;
  std::optional<Cluster> bystanders_;
  Random random_{1};
};

void greet(const Socket& socket, const wire::Topology& topology) {
  send(socket, {{.kind = wire::FrameKind::hello, .payload = wire::kTopologyBytes},
                wire::encode_hello({topology, 0, 0})});
}

// Reads on until the aggregator closes; bounded by what it may say.
void check_is_closed(const Socket& socket) {
  std::array<std::byte, 4096> said;
  wait_until([&] {
    const ssize_t got = ::recv(socket.fd(), said.data(), said.size(), 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  });
}

// Reads on until the aggregator says so.
void check_is_told(const Socket& socket, const std::string& words) {
  std::string said;
  wait_until([&] {
    std::array<char, 4096> part;
    const ssize_t got = ::recv(socket.fd(), part.data(), part.size(), 0);
    if (got > 0) said.append(part.data(), static_cast<std::size_t>(got));
    return got == 0 || said.find(words) != std::string::npos;
  });
  CHECK(said.find(words) != std::string::npos);
}

void check_refused(Besieged& besieged, const wire::Topology& topology, const char* advice) {
  Cluster cluster = besieged.join(topology);
  Random random(2);
  Collective collective = random_collective(kLarge, topology.world_size, 256, {1}, random);
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    const Status failure = outcome(submit(cluster, collective, rank));
    check_failed(failure, ErrorCode::resources, kNoRank);
    CHECK(failure->message.find(advice) != std::string::npos);
  }
}

TEST_CASE("a job that asks for too large a window is refused with what to set") {
  Besieged besieged;
  wire::Topology topology = topology_of(2, 1, 1);
  topology.window_bytes = 1u << 30;
  check_refused(besieged, topology, "--max-window");
}

TEST_CASE("a job that may need more than a job may have is refused with what to set") {
  Besieged besieged({.job_memory = 64u << 20});
  check_refused(besieged, topology_of(4, 1, 1), "--job-memory");
  check_refused(besieged, topology_of(2, 2, 1), "--job-memory");
}

TEST_CASE("a job that may need more than others leave is refused, and welcome once they do") {
  Besieged besieged({.memory = 128u << 20});
  {
    Cluster first = besieged.join(topology_of(2, 1, 1));
    Random random(3);
    check_works(first, kLarge, random);
    CHECK(besieged.aggregator().stats().memory_reserved > 64u << 20);
    SocketPair pair = connected_pair();
    besieged.aggregator().add_worker({3, 2, 0, 0}, pair.b.release());
    greet(pair.a, topology_of(2, 1, 1));
    check_is_closed(pair.a);
    first.close();
  }
  wait_until([&] { return besieged.aggregator().stats().workers == 2; });
  Cluster second = besieged.join(topology_of(2, 1, 1));
  Random random(4);
  check_works(second, kLarge, random);
  second.close();
}

TEST_CASE("cancels for any sequence end the job that sends them") {
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    Besieged besieged;
    const Socket socket = besieged.intrude();
    greet(socket, topology_of(2, 1, 1));
    std::uint64_t sent = 0;
    for (; sent < 2 * proto::kMaxUnsettled; ++sent) {
      Buffer bytes(wire::kHeaderBytes);
      wire::encode({.kind = wire::FrameKind::cancel, .seq = (sent * step) % wire::kMaxSequence},
                   std::span(bytes).first<wire::kHeaderBytes>());
      if (::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
    }
    CHECK(besieged.aggregator().stats().memory < 16u << 20);
    check_is_told(socket, step == 1 ? "wait for other ranks to catch up" : "is too far ahead");
  }
}

TEST_CASE("a large frame that no worker may send is refused by its header") {
  const wire::FrameHeader promise{.kind = wire::FrameKind::segment,
                                  .format = wire::Format::dense,
                                  .payload = 500'000,
                                  .chunk = 0,
                                  .next = 1};
  for (const bool greets : {true, false}) {
    Besieged besieged;
    const Socket socket = besieged.intrude();
    if (greets) greet(socket, topology_of(2, 1, 1));
    send(socket, {promise, {}});
    check_is_told(socket, greets ? "its operation is not open" : "a hello must come first");
  }
}

TEST_CASE("a worker without a hello is let go after the grace, and named to its job") {
  Besieged besieged({.grace = kSoon});
  Cluster cluster = besieged.join(topology_of(2, 1, 1), 1);
  Random random(5);
  Collective collective = random_collective(kLarge, 2, 256, {1}, random);
  check_failed(outcome(submit(cluster, collective, 0)), ErrorCode::peer_lost, 1);
  check_is_closed(cluster.sockets_of(1)[0][0]);
}

TEST_CASE("a worker that beats keeps its place beyond the grace") {
  Besieged besieged({.grace = kSoon});
  Cluster cluster = besieged.join(topology_of(2, 2, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds{1500});
  Random random(6);
  check_works(cluster, kLarge, random);
  cluster.close();
}

TEST_CASE("a worker without its lane 0 has no pulse, and is let go") {
  Besieged besieged({.grace = kSoon});
  SocketPair pair = connected_pair();
  besieged.aggregator().add_worker({2, 2, 0, 1}, pair.b.release());
  send(pair.a, {{.kind = wire::FrameKind::hello, .payload = wire::kTopologyBytes},
                wire::encode_hello({topology_of(2, 2, 1), 1, 0})});
  check_is_closed(pair.a);
}

TEST_CASE("workers of a broken job that stay are let go") {
  Besieged besieged({.grace = kSoon});
  const Socket silent = besieged.intrude(0);
  greet(silent, topology_of(2, 1, 1));
  besieged.intrude(1).close();
  check_is_closed(silent);
}

TEST_CASE("a worker that the system cannot watch is lost alone") {
  Besieged besieged;
  std::FILE* const file = std::tmpfile();  // epoll takes no files
  REQUIRE(file);
  const comm::Aggregator::Identity identity{2, 2, 0, 0};
  besieged.aggregator().add_worker(identity, ::dup(::fileno(file)));
  wait_until([&] { return !besieged.aggregator().serves(identity); });
  std::fclose(file);
}

TEST_CASE("workers that never read hold back results, and not memory") {
  Besieged besieged;
  const wire::Topology topology = topology_of(2, 1, 1);
  const Socket a = besieged.intrude(0);
  const Socket b = besieged.intrude(1);
  constexpr std::uint64_t chunks = 4000;
  const wire::Descriptor descriptor{.count = chunks * wire::kMaxChunkElements,
                                    .is_sparse = true,
                                    .form = wire::ResultForm::dense};
  Buffer payload(wire::kDescriptorBytes);
  wire::encode(descriptor, std::span<std::byte, wire::kDescriptorBytes>(payload));
  for (const Socket* socket : {&a, &b}) {
    greet(*socket, topology);
    send(*socket, {{.kind = wire::FrameKind::open, .payload = wire::kDescriptorBytes, .next = 0},
                   Bytes::copy_of(payload)});
  }
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const Socket* socket : {&a, &b}) {
      send(*socket, {{.kind = wire::FrameKind::segment,
                      .format = wire::Format::coordinates,
                      .payload = 6,
                      .chunk = chunk,
                      .next = chunk + 1},
                     Bytes::copy_of(Buffer(6))});
    }
  }
  wait_until([&] { return besieged.aggregator().stats().memory > 2u << 20; });
  for (int look = 0; look < 300; ++look) {
    CHECK(besieged.aggregator().stats().memory < 16u << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace aggregator_limits_test
