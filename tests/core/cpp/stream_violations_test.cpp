// What no correct peer does: every violation of the stream protocol gets a typed error, and any
// input at all leaves memory bounded and intact.
#include <doctest/doctest.h>

#include "proto/stream/owner.hpp"
#include "proto/stream/worker.hpp"
#include "tensors.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Format;
using wire::FrameKind;
using wire::kNoChunk;

constexpr DType kFloat = DType::float32;

// Owner 0 of two; of a sum over four chunks it owns 0 and 2 where the sequence number is even.
constexpr wire::Topology kTopology{.world_size = 2, .lanes = 1, .owners = 2, .block = 256};
constexpr std::uint64_t kChunk = 8192;
constexpr wire::Descriptor kSum{kFloat, ReduceOp::sum, 4 * kChunk};
constexpr wire::Descriptor kMax{kFloat, ReduceOp::max, 4 * kChunk};
constexpr std::size_t kChunkBytes = kChunk * 4;

wire::Message message(wire::FrameHeader header, const Buffer& payload) {
  header.payload = static_cast<std::uint32_t>(payload.size());
  return {header, Bytes::copy_of(payload)};
}

wire::Message open(std::uint64_t seq, const wire::Descriptor& descriptor, std::uint64_t next) {
  Buffer payload(wire::kDescriptorBytes);
  wire::encode(descriptor, std::span<std::byte, wire::kDescriptorBytes>(payload));
  return message({.kind = FrameKind::open, .seq = seq, .next = next}, payload);
}

wire::Message segment(std::uint64_t seq, std::uint64_t chunk, std::uint64_t next,
                      std::size_t bytes = kChunkBytes, Format format = Format::dense) {
  return message(
      {.kind = FrameKind::segment, .format = format, .seq = seq, .chunk = chunk, .next = next},
      Buffer(bytes));
}

wire::Message result(std::uint64_t chunk, std::uint64_t next, std::size_t bytes = kChunkBytes) {
  const Format format = bytes == 0 ? Format::empty : Format::dense;
  return message({.kind = FrameKind::result, .format = format, .chunk = chunk, .next = next},
                 Buffer(bytes));
}

wire::Message cancel(std::uint64_t seq) {
  return message({.kind = FrameKind::cancel, .seq = seq}, {});
}

bool is_violation(const Status& status) {
  return status && status->code == ErrorCode::protocol && !status->message.empty();
}

class OwnerBench {
 public:
  explicit OwnerBench(std::uint32_t window = 1u << 22) : owner_(with_window(window), 0, 0) {}

  Status send(Rank rank, wire::Message message) {
    return owner_.on_message(rank, std::move(message), outbox_);
  }
  bool takes(Rank rank, wire::Message message) { return !send(rank, std::move(message)); }
  bool refuses(Rank rank, wire::Message message) {
    return is_violation(send(rank, std::move(message)));
  }
  void pause(bool paused) { owner_.pause(paused, outbox_); }
  const proto::Owner& owner() const { return owner_; }
  const proto::Owner::Outbox& outbox() const { return outbox_; }

 private:
  static wire::Topology with_window(std::uint32_t window) {
    wire::Topology topology = kTopology;
    topology.window_bytes = window;
    return topology;
  }

  proto::Owner owner_;
  proto::Owner::Outbox outbox_;
};

// --- Owner: pausing ---

TEST_CASE("a paused owner takes segments within the window, and answers when it goes on") {
  OwnerBench bench;
  bench.pause(true);
  for (const Rank rank : {0, 1}) {
    CHECK(bench.takes(rank, open(0, kSum, 0)));
    CHECK(bench.takes(rank, segment(0, 0, 2)));
    CHECK(bench.takes(rank, segment(0, 2, kNoChunk)));
  }
  CHECK(bench.outbox().empty());
  CHECK(bench.owner().buffered_bytes() == 4 * kChunkBytes);

  bench.pause(false);
  REQUIRE(bench.outbox().size() == 2);
  CHECK(bench.outbox()[1].header.next == kNoChunk);
  CHECK(bench.owner().buffered_bytes() == 0);
  CHECK(bench.owner().operations() == 0);
}

// --- Owner: frames and opens ---

TEST_CASE("an owner refuses frames that are not for owners") {
  for (const FrameKind kind : {FrameKind::hello, FrameKind::result, FrameKind::fail,
                               FrameKind::abort, FrameKind::goodbye}) {
    CHECK(OwnerBench().refuses(0, message({.kind = kind}, {})));
  }
}

TEST_CASE("an open must fit the protocol") {
  CHECK(OwnerBench().refuses(0, message({.kind = FrameKind::open}, Buffer(15))));
  for (const std::uint64_t next : {std::uint64_t{0}, std::uint64_t{2}, kNoChunk}) {
    CHECK(OwnerBench().takes(0, open(0, kSum, next)));
    CHECK(OwnerBench().takes(0, open(0, kMax, next)) == (next == 0));
  }
  for (const std::uint64_t next : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{4},
                                   std::uint64_t{1} << 40, kNoChunk - 1}) {
    CHECK(OwnerBench().refuses(0, open(0, kSum, next)));
    CHECK(OwnerBench().refuses(0, open(0, kMax, next)));
  }
  CHECK(OwnerBench().takes(0, open(0, {kFloat, ReduceOp::max, 0}, kNoChunk)));
  CHECK(OwnerBench().refuses(0, open(0, {kFloat, ReduceOp::max, 0}, 0)));
}

TEST_CASE("an open is refused where the operation has no chunk for this owner") {
  CHECK(OwnerBench().takes(0, open(2, {kFloat, ReduceOp::sum, 10}, 0)));
  CHECK(OwnerBench().refuses(0, open(1, {kFloat, ReduceOp::sum, 10}, 0)));
  CHECK(OwnerBench().refuses(0, open(1, {kFloat, ReduceOp::sum, 10}, kNoChunk)));
}

TEST_CASE("operations are opened once, in order, and not after they were cancelled") {
  OwnerBench bench;
  CHECK(bench.takes(0, open(2, kSum, 0)));
  CHECK(bench.refuses(0, open(2, kSum, 0)));
  CHECK(bench.refuses(0, open(0, kSum, 0)));
  CHECK(bench.takes(0, cancel(4)));
  CHECK(bench.refuses(0, open(4, kSum, 0)));
  CHECK(bench.refuses(0, cancel(4)));
  CHECK(bench.takes(0, open(6, kSum, 0)));
}

TEST_CASE("an operation may be cancelled before an older one is opened") {
  OwnerBench bench;
  CHECK(bench.takes(0, cancel(2)));
  CHECK(bench.takes(0, open(0, kSum, 0)));
}

TEST_CASE("a rank cannot open more operations than its window holds, cancelled ones apart") {
  OwnerBench bench(65);
  CHECK(bench.takes(0, open(0, kSum, 0)));
  CHECK(bench.takes(0, open(2, kSum, 0)));
  CHECK(bench.refuses(0, open(4, kSum, 0)));
  CHECK(bench.takes(0, cancel(0)));
  CHECK(bench.takes(0, open(6, kSum, 0)));
}

// --- Owner: segments ---

TEST_CASE("a segment needs an open operation") {
  OwnerBench bench;
  CHECK(bench.refuses(0, segment(0, 0, kNoChunk)));
  CHECK(bench.takes(1, open(0, kSum, 0)));
  CHECK(bench.refuses(0, segment(0, 0, kNoChunk)));
  CHECK(bench.takes(1, segment(0, 0, 2)));
}

TEST_CASE("a segment must be the announced one and announce a later one") {
  const auto refuses = [](const wire::Descriptor& descriptor, wire::Message message) {
    OwnerBench bench;
    CHECK(bench.takes(0, open(0, descriptor, 0)));
    return bench.refuses(0, std::move(message));
  };
  CHECK_FALSE(refuses(kSum, segment(0, 0, 2)));
  CHECK_FALSE(refuses(kSum, segment(0, 0, kNoChunk)));
  CHECK_FALSE(refuses(kMax, segment(0, 0, 2)));
  CHECK(refuses(kMax, segment(0, 0, kNoChunk)));
  CHECK(refuses(kSum, segment(0, 2, kNoChunk)));
  for (const std::uint64_t next : {0u, 1u, 3u, 4u, 6u}) {
    CHECK(refuses(kSum, segment(0, 0, next)));
    CHECK(refuses(kMax, segment(0, 0, next)));
  }
}

TEST_CASE("a chunk is sent once") {
  OwnerBench bench;
  CHECK(bench.takes(0, open(0, kSum, 0)));
  CHECK(bench.takes(0, segment(0, 0, 2)));
  CHECK(bench.refuses(0, segment(0, 0, 2)));
  CHECK(bench.takes(0, segment(0, 2, kNoChunk)));
  CHECK(bench.refuses(0, segment(0, 2, kNoChunk)));
}

TEST_CASE("a segment must hold what its format says") {
  const auto refuses = [](const wire::Descriptor& descriptor, std::size_t bytes, Format format) {
    OwnerBench bench;
    CHECK(bench.takes(0, open(0, descriptor, 0)));
    return bench.refuses(0, segment(0, 0, 2, bytes, format));
  };
  CHECK(refuses(kSum, kChunkBytes - 1, Format::dense));
  CHECK(refuses(kSum, kChunkBytes + 1, Format::dense));
  CHECK(refuses(kSum, kChunkBytes, Format::blocks));
  CHECK(refuses(kSum, kChunkBytes, Format::empty));
  CHECK(refuses(kMax, kChunkBytes + 8, Format::blocks));
}

TEST_CASE("a rank cannot send beyond its window") {
  constexpr std::uint64_t chunks = 32;
  constexpr std::size_t bytes = wire::kMaxChunkElements * 4;
  OwnerBench bench(65);
  CHECK(bench.takes(0, open(0, {kFloat, ReduceOp::sum, chunks * wire::kMaxChunkElements}, 0)));
  std::uint64_t taken = 0;
  while (2 * taken < chunks && bench.takes(0, segment(0, 2 * taken, 2 * taken + 2, bytes))) ++taken;
  // Room for a few segments of the largest size, and one more that may overshoot.
  CHECK(taken * bytes > proto::kSegmentsInWindow * wire::kMaxPayload);
  CHECK(taken * bytes <= (proto::kSegmentsInWindow + 1) * wire::kMaxPayload);
}

TEST_CASE("a failed operation takes what is on its way and ends with the last cancel") {
  OwnerBench bench;
  CHECK(bench.takes(0, open(0, kSum, 0)));
  CHECK(bench.takes(0, segment(0, 0, 2)));
  CHECK(bench.takes(1, open(0, kMax, 0)));
  REQUIRE(bench.outbox().size() == 1);
  CHECK(bench.outbox()[0].header.kind == FrameKind::fail);
  CHECK(bench.owner().buffered_bytes() == 0);
  CHECK(bench.takes(0, segment(0, 2, kNoChunk)));
  CHECK(bench.takes(1, cancel(0)));
  CHECK(bench.owner().operations() == 1);
  CHECK(bench.takes(0, cancel(0)));
  CHECK(bench.owner().operations() == 0);
  CHECK(bench.outbox().size() == 1);
}

TEST_CASE("an owner tells whom an operation waits for") {
  OwnerBench bench;
  CHECK(bench.owner().missing(0).empty());
  CHECK(bench.takes(1, open(0, kSum, 0)));
  CHECK((bench.owner().missing(0) == std::vector<Rank>{0}));
  CHECK(bench.takes(0, open(0, kSum, kNoChunk)));
  CHECK((bench.owner().missing(0) == std::vector<Rank>{1}));
  CHECK(bench.takes(1, segment(0, 0, kNoChunk)));
  CHECK(bench.owner().missing(0).empty());
}

// --- Worker ---

// Rank 0's worker half with one operation; what it sends to owner 0 is chunks 0 and 2.
class WorkerBench {
 public:
  explicit WorkerBench(int polls, const wire::Descriptor& descriptor = kSum)
      : tensor_(Buffer(descriptor.count * 4, std::byte{1}), true), worker_(kTopology, 0) {
    const proto::ChunkGrid grid = proto::make_grid(descriptor, kTopology);
    const proto::DenseTensor dense{tensor_.source(), tensor_.target(), descriptor, grid};
    REQUIRE(worker_.submit(0, descriptor, grid, source_of(dense),
                           std::make_unique<proto::DenseSink>(dense)));
    for (int i = 0; i < polls; ++i) REQUIRE(worker_.poll(0));
  }

  bool takes(const wire::Message& message) { return static_cast<bool>(give(message)); }
  bool refuses(const wire::Message& message) {
    CHECK_FALSE(worker_.place(0, message.header));
    const auto outcome = give(message);
    return !outcome && is_violation(outcome.error());
  }

  proto::Worker& worker() { return worker_; }

 private:
  Result<bool> give(const wire::Message& message) {
    return worker_.on_result(0, message.header, message.payload.view());
  }

  RankTensor tensor_;
  proto::Worker worker_;
};

constexpr int kOpened = 1;  // polls
constexpr int kSentOne = 2;
constexpr int kSentAll = 3;

TEST_CASE("a result before the open, or before this rank's own values, is refused") {
  CHECK(WorkerBench(0).refuses(result(0, 2)));
  CHECK(WorkerBench(kOpened).refuses(result(0, 2)));
  CHECK(WorkerBench(kOpened).refuses(result(kNoChunk, kNoChunk, 0)));
  CHECK(WorkerBench(kSentOne).takes(result(0, 2)));
  WorkerBench bench(kSentOne);
  CHECK(bench.takes(result(0, 2)));
  CHECK(bench.refuses(result(2, kNoChunk)));
}

TEST_CASE("a result that leaves out what this rank sent is refused") {
  CHECK(WorkerBench(kSentAll).refuses(result(2, kNoChunk)));
  CHECK(WorkerBench(kSentAll).refuses(result(kNoChunk, kNoChunk, 0)));
  WorkerBench bench(kSentAll);
  const auto outcome = bench.worker().on_result(0, result(0, kNoChunk).header, Buffer(kChunkBytes));
  REQUIRE_FALSE(outcome);
  CHECK(is_violation(outcome.error()));
}

TEST_CASE("results come in the announced order and only for chunks of the stream") {
  CHECK(WorkerBench(kSentAll).refuses(result(1, 3)));
  CHECK(WorkerBench(kSentAll).refuses(result(0, 1)));
  CHECK(WorkerBench(kSentAll).refuses(result(0, 4)));
  CHECK(WorkerBench(kSentAll).refuses(result(4, 6)));
  WorkerBench bench(kSentAll);
  CHECK(bench.takes(result(0, 2)));
  CHECK(bench.refuses(result(0, 2)));
}

TEST_CASE("a result's chunk and payload fit its format") {
  CHECK(WorkerBench(kSentAll).refuses(result(0, 2, 0)));
  CHECK(WorkerBench(kSentAll).refuses(result(kNoChunk, kNoChunk)));
  CHECK(WorkerBench(kSentAll).refuses(result(0, 2, kChunkBytes + 4)));
  CHECK(WorkerBench(kSentAll).refuses(result(0, 2, kChunkBytes - 4)));
}

TEST_CASE("results of operations that are not in flight are left alone") {
  WorkerBench bench(kSentAll);
  wire::Message other = result(0, 2);
  other.header.seq = 5;
  CHECK(bench.takes(other));
  CHECK(bench.worker().drop(0));
  CHECK_FALSE(bench.worker().drop(0));
  CHECK(bench.worker().bytes_in_flight(0) == 0);
  CHECK(bench.takes(result(0, 2)));
}

TEST_CASE("a worker tells which owners it waits for") {
  WorkerBench bench(kSentAll);
  CHECK((bench.worker().waiting_for(0) == std::vector<std::uint32_t>{0, 1}));
  CHECK(bench.takes(result(0, 2)));
  CHECK(bench.takes(result(2, kNoChunk)));
  CHECK((bench.worker().waiting_for(0) == std::vector<std::uint32_t>{1}));
  CHECK(bench.worker().waiting_for(1).empty());
}

// --- Any input ---

// A header as the wire would carry it, damaged; none where that cannot be decoded any more.
std::optional<wire::FrameHeader> damaged(const wire::FrameHeader& header, Random& random) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::encode(header, bytes);
  mutate(bytes, random);
  const auto decoded = wire::decode_header(bytes);
  return decoded ? std::optional(*decoded) : std::nullopt;
}

// Mostly the message as it is; else with a payload or a header that lies, or another chunk.
std::optional<wire::Message> maybe_damaged(const wire::Message& original, Random& random) {
  const auto view = original.payload.view();
  Buffer payload(view.begin(), view.end());
  wire::FrameHeader header = original.header;
  switch (below(20, random)) {
    case 0:
      if (const auto bad = damaged(header, random)) {
        header = *bad;
      } else {
        return {};
      }
      break;
    case 1:
      mutate(payload, random);
      break;
    case 2:
      payload = mutated(payload, random);
      break;
    case 3:
      (one_in(2, random) ? header.chunk : header.next) = below(6, random);
      break;
    default:
      break;
  }
  return message(header, payload);
}

// Workers and an owner that talk over a line which damages, repeats and loses messages.
class NoisyWorld {
 public:
  explicit NoisyWorld(std::uint64_t seed)
      : random_(seed),
        topology_{.world_size = 3,
                  .block = 256,
                  .window_bytes = pick<std::uint32_t>({65, 40'000, 1u << 20}, random_)},
        owner_(topology_, 0, 0) {
    for (std::uint32_t rank = 0; rank < topology_.world_size; ++rank) {
      ranks_.push_back(std::make_unique<Peer>(topology_));
    }
  }

  void run() {
    for (std::uint64_t seq = 0; seq < 3; ++seq) submit(seq);
    for (int step = 0; step < 60; ++step) {
      const auto rank = static_cast<Rank>(below(ranks_.size(), random_));
      Peer& peer = *ranks_[static_cast<std::size_t>(rank)];
      if (peer.is_gone) continue;
      if (auto polled = peer.worker.poll(0)) peer.last_sent = *std::move(polled);
      send(rank, peer.last_sent);
    }
  }

 private:
  struct Peer {
    explicit Peer(const wire::Topology& topology) : worker(topology, 0) {}

    std::deque<RankTensor> tensors;
    proto::Worker worker;
    bool is_gone = false;
    wire::Message last_sent;
  };

  void submit(std::uint64_t seq) {
    const std::uint64_t count = below(30'000, random_);
    const wire::Descriptor descriptor{pick(kDTypes, random_), pick(kOps, random_), count};
    for (const auto& peer : ranks_) {
      wire::Descriptor own = descriptor;
      if (one_in(30, random_)) own.count += 1;
      peer->tensors.emplace_back(random_tensor(own, topology_.block, {0.1}, random_), true);
      const proto::ChunkGrid grid = proto::make_grid(own, topology_);
      RankTensor& tensor = peer->tensors.back();
      const proto::DenseTensor dense{tensor.source(), tensor.target(), own, grid};
      peer->worker.submit(seq, own, grid, source_of(dense),
                          std::make_unique<proto::DenseSink>(dense));
    }
  }

  void send(Rank rank, const wire::Message& original) {
    if (one_in(30, random_)) return;
    auto message = maybe_damaged(original, random_);
    proto::Owner::Outbox outbox;
    const Status error = message ? owner_.on_message(rank, *std::move(message), outbox)
                                 : protocol_error("a header that cannot be decoded");
    if (error) {
      REQUIRE(is_violation(error));
      ranks_[static_cast<std::size_t>(rank)]->is_gone = true;
    }
    REQUIRE(owner_.buffered_bytes() <=
            topology_.world_size * (topology_.window_bytes + wire::kMaxPayload));
    for (const wire::Message& answer : outbox) {
      for (const auto& peer : ranks_) receive(*peer, answer);
    }
  }

  void receive(Peer& peer, const wire::Message& original) {
    if (peer.is_gone || original.header.kind != FrameKind::result) return;
    const auto message = maybe_damaged(original, random_);
    if (!message) return;
    const auto outcome = peer.worker.on_result(0, message->header, message->payload.view());
    if (outcome) return;
    REQUIRE(is_violation(outcome.error()));
    peer.is_gone = true;
  }

  Random random_;
  wire::Topology topology_;
  proto::Owner owner_;
  std::vector<std::unique_ptr<Peer>> ranks_;
};

TEST_CASE("damaged, lost and repeated messages end in typed errors at worst") {
  for (std::uint64_t seed = 0; seed < 700; ++seed) {
    CAPTURE(seed);
    NoisyWorld(seed).run();
  }
}

wire::Message random_message(Random& random) {
  const std::uint64_t seq = below(4, random);
  const auto chunk = [&] {
    return pick({below(6, random), below(6, random), kNoChunk, edgy_number(random)}, random);
  };
  switch (below(8, random)) {
    case 0:
      return cancel(seq);
    case 1:
    case 2:
      return open(seq,
                  {pick({kFloat, DType::float64}, random), pick(kOps, random),
                   pick<std::uint64_t>({0, 10, kChunk, 4 * kChunk, wire::kMaxCount}, random)},
                  chunk());
    case 3:
      return message({.kind = static_cast<FrameKind>(1 + below(8, random)), .seq = seq},
                     random_bytes(below(40, random), random));
    default:
      return segment(seq, chunk(), chunk(),
                     pick<std::size_t>({40, kChunkBytes, 2 * kChunkBytes}, random),
                     pick({Format::dense, Format::blocks, Format::empty}, random));
  }
}

TEST_CASE("an owner takes any messages or refuses them") {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::uint32_t window = pick<std::uint32_t>({65, 40'000, 1u << 20}, random);
    OwnerBench bench(window);
    for (int i = 0; i < 30; ++i) {
      const Status error = bench.send(static_cast<Rank>(below(2, random)), random_message(random));
      if (error) REQUIRE(is_violation(error));
      REQUIRE(bench.owner().buffered_bytes() <= 2 * (window + wire::kMaxPayload));
      REQUIRE(bench.owner().operations() <= 4);
    }
  }
}

TEST_CASE("a worker takes any results or refuses them") {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    WorkerBench bench(static_cast<int>(below(4, random)), pick({kSum, kMax}, random));
    for (int i = 0; i < 10; ++i) {
      wire::Message message = random_message(random);
      message.header.kind = FrameKind::result;
      if (!one_in(4, random)) message.header.seq = 0;
      const auto outcome = bench.worker().on_result(static_cast<std::uint32_t>(below(2, random)),
                                                    message.header, message.payload.view());
      if (!outcome) REQUIRE(is_violation(outcome.error()));
    }
  }
}

}  // namespace
