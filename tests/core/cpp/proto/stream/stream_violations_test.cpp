// What no correct peer does: every violation of the stream protocol gets a typed error.
#include "proto/stream/source.hpp"
#include "stream_benches.hpp"
#include "wire/frame.hpp"

namespace stream_violations_test {

using namespace sparsewire;
using namespace sparsewire::test;

wire::Message refuse(std::uint64_t seq, const Error& error) {
  const Bytes payload = wire::encode_fault(error);
  return message({.kind = FrameKind::refuse, .seq = seq},
                 {payload.view().begin(), payload.view().end()});
}

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
  for (const FrameKind kind :
       {FrameKind::hello, FrameKind::result, FrameKind::fail, FrameKind::abort, FrameKind::goodbye,
        FrameKind::join, FrameKind::part}) {
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
  for (const std::uint32_t window : {1u << 14, 1u << 16, 1u << 20}) {
    constexpr std::uint64_t chunks = 64;
    OwnerBench bench(window);
    CHECK(bench.takes(0, open(0, {kFloat, ReduceOp::sum, chunks * wire::kMaxChunkElements}, 0)));
    std::size_t cost = proto::kOpenCost;
    for (std::uint64_t chunk = 0; chunk < chunks; chunk += 2) {
      const bool takes = bench.takes(0, segment(0, chunk, chunk + 2, wire::kMaxChunkElements * 4));
      REQUIRE(takes == (cost < window));
      if (!takes) break;
      cost += proto::segment_cost(wire::kMaxChunkElements * 4, window);
    }
    CHECK(cost >= window);
  }
}

// What a worker sends of chunks of ones while no result comes.
std::vector<wire::Message> all_that_fits(std::uint32_t window, Codec codec, std::uint64_t chunks) {
  const wire::Descriptor descriptor{.count = chunks * wire::kMaxChunkElements,
                                    .segment_codec = codec};
  wire::Topology topology = kTopology;
  topology.owners = 1;
  topology.window_bytes = window;
  const proto::ChunkGrid grid = proto::make_grid(descriptor, topology);
  const std::vector<float> ones(descriptor.count, 1.0f);
  const proto::DenseTensor tensor{reinterpret_cast<const std::byte*>(ones.data()), nullptr,
                                  descriptor, grid};
  proto::Worker worker(topology, 0);
  worker.submit(0, descriptor, grid,
                std::make_unique<proto::EncodedSource>(source_of(tensor), descriptor, grid, 0, 0),
                std::make_unique<proto::DenseSink>(tensor));
  std::vector<wire::Message> sent;
  while (worker.has_work(0)) {
    auto message = worker.poll(0);
    if (!message) continue;
    message->payload = message->payload.owned();
    sent.push_back(*std::move(message));
  }
  return sent;
}

TEST_CASE("all that a worker sends ahead of a late rank is within its window") {
  for (const std::uint32_t window : {1u << 16, 1u << 18}) {
    for (const Codec codec : {Codec::raw, Codec::float16, Codec::int8, Codec::int4, Codec::int2}) {
      CAPTURE(static_cast<int>(codec));
      wire::Topology topology = kTopology;
      topology.owners = 1;
      topology.window_bytes = window;
      proto::Owner owner(topology, 0, 0);
      proto::Owner::Outbox outbox;
      for (wire::Message& message : all_that_fits(window, codec, 40)) {
        const Status error = owner.on_message(0, std::move(message), outbox);
        REQUIRE_MESSAGE(!error, (error ? error->message : ""));
      }
      CHECK(owner.buffered_bytes() > window);
      CHECK(owner.memory() < proto::Owner::memory_needed(topology));
    }
  }
}

// --- Owner: bounds ---

TEST_CASE("what a rank cancels ahead of the others is bounded") {
  OwnerBench bench;
  for (std::uint64_t seq = 0; seq < proto::kMaxUnsettled; ++seq) {
    REQUIRE(bench.takes(0, cancel(2 * seq)));
  }
  CHECK(bench.refuses(0, cancel(1'000'000)));
  CHECK(bench.refuses(0, refuse(1'000'000, {ErrorCode::input, 0, "bad"})));
  CHECK(bench.owner().operations() == proto::kMaxUnsettled);
  CHECK(bench.owner().memory() < 8u << 20);
  CHECK(bench.takes(1, cancel(0)));
  CHECK(bench.takes(0, cancel(1'000'000)));
  CHECK(bench.refuses(0, cancel(1'000'002)));
}

TEST_CASE("what a rank refuses, or opens and cancels, counts as well") {
  OwnerBench bench;
  for (std::uint64_t seq = 0; seq < proto::kMaxUnsettled; ++seq) {
    if (seq % 2 == 0) {
      REQUIRE(bench.takes(0, refuse(2 * seq, {ErrorCode::input, 0, ""})));
      REQUIRE(bench.takes(0, cancel(2 * seq)));
    } else {
      REQUIRE(bench.takes(0, open(2 * seq, kSum, 0)));
      REQUIRE(bench.takes(0, cancel(2 * seq)));
    }
  }
  CHECK(bench.refuses(0, cancel(1'000'000)));
  CHECK(bench.takes(0, open(1'000'000, kSum, 0)));
}

TEST_CASE("where an owner sees all operations, a rank cannot name one far ahead") {
  proto::Owner owner(kTopology, 0, 0, {.reach = 100});
  proto::Owner::Outbox outbox;
  const auto takes = [&](Rank rank, std::uint64_t seq) {
    const bool is_taken = !owner.on_message(rank, cancel(seq), outbox);
    CHECK(is_taken != is_violation(owner.accepts(rank, cancel(seq + 1).header)));
    return is_taken;
  };
  CHECK(takes(0, 100));
  CHECK_FALSE(takes(0, 103));
  CHECK_FALSE(takes(0, std::uint64_t{1} << 40));
  CHECK(owner.operations() == 1);
  CHECK_FALSE(owner.on_message(1, cancel(100), outbox));
  CHECK(takes(1, 201));
  CHECK_FALSE(takes(1, 204));
}

TEST_CASE("an owner tells from the header alone what is not worth receiving") {
  OwnerBench bench;
  const auto accepts = [&](const wire::Message& message) {
    return !bench.owner().accepts(0, message.header);
  };
  CHECK_FALSE(accepts(segment(0, 0, 2)));
  CHECK(accepts(open(0, kSum, 0)));
  CHECK(bench.takes(0, open(0, kSum, 0)));
  CHECK_FALSE(accepts(open(0, kSum, 0)));
  CHECK(accepts(segment(0, 0, 2)));
  CHECK_FALSE(accepts(segment(0, 2, kNoChunk)));
  CHECK_FALSE(accepts(segment(0, 0, 1)));
  CHECK_FALSE(accepts(result(0, 2)));
  CHECK(bench.takes(0, cancel(0)));
  CHECK_FALSE(accepts(segment(0, 0, 2)));
}

TEST_CASE("an owner that has made much at once waits for its results to leave") {
  constexpr std::uint64_t chunks = 40;
  const wire::Descriptor descriptor{.count = chunks * wire::kMaxChunkElements,
                                    .is_sparse = true,
                                    .form = wire::ResultForm::dense};
  OwnerBench bench;
  for (const Rank rank : {0, 1}) {
    CHECK(bench.takes(rank, open(0, descriptor, 0)));
    for (std::uint64_t chunk = 0; chunk < chunks; chunk += 2) {
      const std::uint64_t next = chunk + 2 < chunks ? chunk + 2 : kNoChunk;
      // Rank 1 keeps its last chunk to itself for long: one message completes all.
      if (rank == 1) continue;
      CHECK(bench.takes(rank, segment(0, chunk, next, 6, Format::coordinates)));
    }
  }
  CHECK(bench.outbox().empty());
  CHECK(bench.takes(1, segment(0, 0, kNoChunk, 6, Format::coordinates)));
  std::size_t rounds = 0;
  for (; bench.owner().is_paused(); ++rounds) {
    CHECK(bench.outbox().size() * wire::kMaxChunkElements * 4 <=
          (rounds + 1) * ((2u << 20) + wire::kMaxPayload));
    bench.pause(false);
  }
  CHECK(rounds >= 2);
  CHECK(bench.outbox().size() == chunks / 2);
  CHECK(bench.owner().operations() == 0);
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

// --- Owner: refusals ---

TEST_CASE("a refused operation fails once, before or after others have opened it") {
  for (const bool is_first : {true, false}) {
    OwnerBench bench;
    if (!is_first) CHECK(bench.takes(0, open(0, kSum, 0)));
    if (!is_first) CHECK(bench.takes(0, segment(0, 0, 2)));
    CHECK(bench.takes(1, refuse(0, {ErrorCode::input, 1, "rank 1: bad"})));
    REQUIRE(bench.outbox().size() == 1);
    CHECK(bench.outbox()[0].header.kind == FrameKind::fail);
    const auto fault = wire::decode_fault(bench.outbox()[0].payload.view());
    REQUIRE(fault);
    CHECK(fault->error.code == ErrorCode::input);
    CHECK(fault->error.message == "rank 1: bad");
    CHECK(bench.owner().buffered_bytes() == 0);
    if (is_first) CHECK(bench.takes(0, open(0, kSum, 0)));
    CHECK(bench.takes(0, refuse(0, {ErrorCode::input, 0, "rank 0: bad, too"})));
    CHECK(bench.outbox().size() == 1);
    CHECK(bench.takes(1, cancel(0)));
    CHECK(bench.takes(0, cancel(0)));
    CHECK(bench.owner().operations() == 0);
  }
}

TEST_CASE("a refusal must carry a fault") {
  CHECK(OwnerBench().refuses(0, message({.kind = FrameKind::refuse}, Buffer(7))));
}

// --- Worker ---

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
  const auto outcome =
      bench.worker().on_result(0, result(0, kNoChunk).header, Bytes::copy_of(Buffer(kChunkBytes)));
  REQUIRE_FALSE(outcome);
  CHECK(is_violation(outcome.error()));
}

TEST_CASE("a worker goes on until it is told, although a result left out what it has announced") {
  WorkerBench bench(kSentOne);
  const auto outcome =
      bench.worker().on_result(0, result(0, kNoChunk).header, Bytes::copy_of(Buffer(kChunkBytes)));
  REQUIRE_FALSE(outcome);
  CHECK(is_violation(outcome.error()));
  CHECK(bench.worker().poll(0).has_value());
  CHECK((bench.worker().opened(0) == std::vector<std::uint32_t>{0}));
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

}  // namespace stream_violations_test
