// What no correct peer does: every violation of the stream protocol gets a typed error.
#include "stream_benches.hpp"
#include "wire/fault.hpp"

namespace {

using namespace sparsewire;
using namespace sparsewire::test;

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

// --- Owner: refusals ---

wire::Message refuse(std::uint64_t seq, const Error& error) {
  const Bytes payload = wire::encode_fault(error);
  return message({.kind = FrameKind::refuse, .seq = seq},
                 {payload.view().begin(), payload.view().end()});
}

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

}  // namespace
