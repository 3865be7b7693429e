// What no correct rank does in an exchange: every violation gets a typed error, and any input at
// all leaves memory intact.
#include <doctest/doctest.h>

#include <array>

#include "proto/exchange/peer.hpp"
#include "sparse_collectives.hpp"
#include "wire/frame.hpp"
#include "wire/segment.hpp"

namespace peer_violations_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;
using wire::Collective;
using wire::Format;
using wire::FrameKind;
using wire::kNoChunk;
using wire::Message;
using wire::Piece;

// Short, so that it starts at once; two chunks in one part.
constexpr Call kCall{.descriptor = {.dtype = DType::float16, .count = 2000, .is_sparse = true}};
constexpr Call kLong{.descriptor = {.count = 100'000, .is_sparse = true},
                     .algorithm = Algorithm::allgather};

Message message(FrameKind kind, const Buffer& payload, std::uint64_t part = 0,
                std::uint64_t next = kNoChunk) {
  return {{.kind = kind,
           .payload = static_cast<std::uint32_t>(payload.size()),
           .chunk = part,
           .next = next},
          Bytes::copy_of(payload)};
}

Message join_message(const wire::Join& join) {
  Buffer payload(wire::kJoinBytes);
  wire::encode(join, std::span<std::byte, wire::kJoinBytes>(payload));
  return message(FrameKind::join, payload);
}

Buffer bundle_of(const std::vector<Piece>& pieces) {
  std::size_t first = 0;
  const auto bundle = wire::encode_bundle(pieces, first);
  return {bundle.view().begin(), bundle.view().end()};
}

Message part(const std::vector<Piece>& pieces, std::uint64_t number = 0) {
  return message(FrameKind::part, bundle_of(pieces), number);
}

Piece piece(std::uint64_t chunk, std::size_t bytes, Format format, Codec codec = Codec::raw) {
  return {chunk, format, codec, Bytes::copy_of(Buffer(bytes))};
}

bool is_violation(const Status& status) {
  return status && status->code == ErrorCode::protocol && !status->message.empty();
}

// Rank 0 of three, which has called `own` and hears what the others send.
class PeerBench {
 public:
  explicit PeerBench(const Call& own = kCall, Rank rank = 0, bool submits = true)
      : random_(1),
        collective_(sparse_collective(own, 3, 100, random_,
                                      [&](std::size_t count) {
                                        return random_small_numbers(count, own.descriptor.dtype,
                                                                    random_);
                                      })),
        rank_(static_cast<std::size_t>(rank)),
        peer_(rank, 3) {
    if (submits) submit();
  }

  void submit() {
    proto::Peer::Effects effects;
    peer_.submit(0, collective_.call(), collective_.vector(rank_).tensor(),
                 collective_.outputs(rank_), effects);
  }

  // An error of the message itself, or of what comes of it.
  Status send(Rank from, const Message& message) {
    proto::Peer::Effects effects;
    if (Status error = peer_.on_message(from, message, effects)) return error;
    while (true) {
      const auto worked = peer_.poll(effects);
      if (!worked) return worked.error();
      if (!*worked) return {};
    }
  }
  bool takes(Rank from, const Message& message) { return !send(from, message); }
  bool refuses(Rank from, const Message& message) { return is_violation(send(from, message)); }
  void join(Rank from) { REQUIRE(takes(from, join_message(collective_.join(rank_)))); }

 private:
  Random random_;
  SparseCollective collective_;
  std::size_t rank_;
  proto::Peer peer_;
};

// Both others have joined.
PeerBench joined(const Call& own = kCall) {
  PeerBench bench(own);
  bench.join(1);
  bench.join(2);
  return bench;
}

// --- Joins ---

TEST_CASE("a rank joins once") {
  PeerBench bench;
  bench.join(1);
  CHECK(bench.refuses(1, join_message({kCall})));
  PeerBench early(kCall, 0, false);
  early.join(1);
  CHECK(early.refuses(1, join_message({kCall})));
}

TEST_CASE("a call must be one, with a root in the world") {
  CHECK(PeerBench().refuses(1, message(FrameKind::join, Buffer(wire::kJoinBytes - 1))));
  CHECK(PeerBench().refuses(1, message(FrameKind::join, Buffer(wire::kJoinBytes))));
  Call rooted = kCall;
  rooted.root = 3;
  CHECK(PeerBench().refuses(1, join_message({rooted})));
  CHECK(PeerBench(kCall, 0, false).refuses(1, join_message({rooted})));
}

TEST_CASE("a refusal carries a fault") {
  CHECK(PeerBench().refuses(1, message(FrameKind::refuse, Buffer(7))));
  const Bytes fault = wire::encode_fault({ErrorCode::input, 1, "no"});
  CHECK(
      PeerBench().takes(1, message(FrameKind::refuse, {fault.view().begin(), fault.view().end()})));
}

// --- Parts ---

TEST_CASE("a part comes behind its rank's join") {
  CHECK(PeerBench().refuses(1, part({})));
  CHECK(PeerBench(kCall, 0, false).refuses(1, part({})));
  PeerBench bench;
  bench.join(2);
  CHECK(bench.refuses(1, part({})));
  CHECK(bench.takes(2, part({})));
}

TEST_CASE("a part's number is one of the operation's") {
  CHECK(joined().takes(1, part({})));
  for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{1} << 40, kNoChunk}) {
    CHECK(joined().refuses(1, part({}, number)));
  }
}

TEST_CASE("a part holds chunks of its own") {
  // The second chunk does not exist, for all that it is so short.
  CHECK(joined().refuses(1, part({piece(1, 6, Format::coordinates)})));
  CHECK(joined(kLong).takes(1, part({piece(1, 6, Format::coordinates)})));
  CHECK(joined(kLong).refuses(1, part({piece(2, 6, Format::coordinates)})));
  CHECK(joined(kLong).refuses(1, part({piece(kNoChunk, 6, Format::coordinates)})));
}

TEST_CASE("a part is a bundle") {
  CHECK(joined().refuses(1, message(FrameKind::part, Buffer(15))));
  CHECK(joined().refuses(1, message(FrameKind::part, Buffer(40))));
  Buffer cut = bundle_of({piece(0, 6, Format::coordinates)});
  cut.pop_back();
  CHECK(joined().refuses(1, message(FrameKind::part, cut)));
  PeerBench bench = joined(kLong);
  CHECK(bench.takes(1,
                    message(FrameKind::part, bundle_of({piece(1, 6, Format::coordinates)}), 0, 0)));
  CHECK(bench.refuses(1, part({piece(1, 6, Format::coordinates)})));
}

// Both others send a part; only then is anything added.
Status outcome_of(const Call& own, const Piece& bad) {
  PeerBench bench = joined(own);
  if (Status error = bench.send(1, part({bad}))) return error;
  return bench.send(2, part({}));
}

TEST_CASE("the pieces of a part hold what their formats say") {
  CHECK_FALSE(outcome_of(kLong, piece(0, 6, Format::coordinates)));
  CHECK(is_violation(outcome_of(kLong, piece(0, 7, Format::coordinates))));
  CHECK(is_violation(outcome_of(kLong, piece(0, 6, Format::dense))));
  CHECK(is_violation(outcome_of(kLong, piece(0, 6, Format::bitmap))));
  CHECK(is_violation(outcome_of(kLong, piece(0, 6, Format::blocks))));
  CHECK(is_violation(outcome_of(kLong, piece(0, 6, Format::packed))));
  CHECK_FALSE(outcome_of(kLong, piece(0, 8, Format::packed)));
  CHECK(is_violation(outcome_of(kLong, piece(1, 8, Format::packed))));
  CHECK(is_violation(outcome_of(kLong, piece(0, 6, Format::coordinates, Codec::int8))));
}

TEST_CASE("a codec is for float32 alone, whether values are added or passed on") {
  Call doubles = kLong;
  doubles.descriptor.dtype = DType::float64;
  CHECK_FALSE(outcome_of(doubles, piece(0, 10, Format::coordinates)));
  Call broadcast = doubles;
  broadcast.collective = Collective::broadcast;
  broadcast.algorithm = Algorithm::automatic;
  Buffer packed(8 + 2 + 2);
  packed[0] = std::byte{1};
  for (const Piece& bad : {piece(0, 4, Format::coordinates, Codec::bfloat16),
                           Piece{0, Format::packed, Codec::bfloat16, Bytes::copy_of(packed)}}) {
    CHECK(is_violation(outcome_of(doubles, bad)));
    PeerBench bench(broadcast, 2);
    bench.join(0);
    bench.join(1);
    CHECK(bench.refuses(0, part({bad})));
  }
}

TEST_CASE("rows come neither packed nor cut") {
  Call rows = kLong;
  rows.descriptor.row = 50;
  rows.descriptor.count = 50 * 2000;
  CHECK(is_violation(outcome_of(rows, piece(0, 8 + 4 * 25, Format::blocks))));
  CHECK(is_violation(outcome_of(rows, piece(0, 8, Format::packed))));
  Buffer packed(8 + 2 + 4);
  packed[0] = std::byte{1};
  CHECK(is_violation(outcome_of(rows, {0, Format::packed, Codec::raw, Bytes::copy_of(packed)})));
}

TEST_CASE("what is passed on was checked") {
  for (const Codec codec : {Codec::raw, Codec::int8, Codec::bfloat16}) {
    for (const Format format : {Format::coordinates, Format::dense, Format::packed}) {
      Call call = kLong;
      call.descriptor.segment_codec = codec;
      call.descriptor.result_codec = codec;
      call.algorithm = Algorithm::ring;
      PeerBench ring(call, 1);
      ring.join(0);
      ring.join(2);
      Status error = ring.send(0, part({piece(0, 3, format)}));
      if (!error) error = ring.send(0, part({piece(0, 3, format)}));
      CHECK(is_violation(error));

      call.collective = Collective::broadcast;
      call.algorithm = Algorithm::automatic;
      PeerBench bench(call, 2);  // gets it from the root and is the last
      bench.join(0);
      bench.join(1);
      CHECK(bench.refuses(0, part({piece(0, 3, format)})));
    }
  }
}

// --- Any input ---

Buffer random_piece_payload(Format format, Random& random) {
  if (!one_in(3, random)) return random_bytes(1 + below(40, random), random);
  Buffer payload(pick<std::size_t>({6, 12, 18}, random));
  if (format == Format::packed) payload.resize(8 + 6);
  payload[0] = std::byte{1};
  return payload;
}

Message random_message(const Call& call, Random& random) {
  switch (below(10, random)) {
    case 0: {
      Message random_join = join_message({call});
      Buffer payload(random_join.payload.view().begin(), random_join.payload.view().end());
      mutate(payload, random);
      return message(FrameKind::join, payload);
    }
    case 1:
      return join_message({call});
    case 2:
      return message(pick({FrameKind::refuse, FrameKind::part}, random),
                     random_bytes(below(60, random), random), below(2, random));
    default:
      break;
  }
  std::vector<Piece> pieces;
  for (std::uint64_t chunk = 0; chunk < below(4, random); ++chunk) {
    const auto format = static_cast<Format>(1 + below(wire::kFormatCount - 1, random));
    pieces.push_back({chunk, format, static_cast<Codec>(below(kCodecCount, random)),
                      Bytes::copy_of(random_piece_payload(format, random))});
  }
  Buffer bundle = bundle_of(pieces);
  if (one_in(4, random)) bundle = mutated(bundle, random);
  return message(FrameKind::part, bundle, one_in(10, random) ? edgy_number(random) : 0,
                 one_in(4, random) ? 0 : kNoChunk);
}

TEST_CASE("a peer takes any messages or refuses them") {
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Call call{.descriptor = {.dtype = pick({DType::float32, DType::float16}, random),
                             .count = pick<std::uint64_t>({640, 6400, 70'400}, random),
                             .is_sparse = true,
                             .row = pick({1u, 1u, 64u}, random)},
              .collective = pick(kCollectives, random),
              .algorithm = pick(kExchanges, random)};
    if (call.descriptor.dtype == DType::float32) {
      call.descriptor.segment_codec = static_cast<Codec>(below(kCodecCount, random));
      call.descriptor.result_codec = static_cast<Codec>(below(kCodecCount, random));
    }
    PeerBench bench(call, static_cast<Rank>(below(3, random)), false);
    if (one_in(2, random)) bench.submit();
    bool may_join = true;
    for (int i = 0; i < 20; ++i) {
      const auto from = static_cast<Rank>(below(3, random));
      Status error;
      if (may_join && i < 3) {
        error = bench.send(i, join_message({call}));
      } else {
        error = bench.send(from, random_message(call, random));
      }
      if (error) {
        REQUIRE(is_violation(error));
        break;
      }
    }
  }
}

}  // namespace peer_violations_test
