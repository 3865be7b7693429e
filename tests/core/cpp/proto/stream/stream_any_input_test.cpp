// Owners and workers stand any input at all: it ends in a typed error at worst, and leaves memory
// bounded and intact.
#include <deque>

#include "stream_benches.hpp"

namespace stream_any_input_test {

using namespace sparsewire;
using namespace sparsewire::test;

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
      const proto::DenseTensor dense{tensor.source(), tensor.out(), own, grid};
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
    const auto outcome = peer.worker.on_result(0, message->header, message->payload);
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
      return message(
          {.kind = static_cast<FrameKind>(1 + below(wire::kFrameKindLast, random)), .seq = seq},
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
                                                    message.header, message.payload);
      if (!outcome) REQUIRE(is_violation(outcome.error()));
    }
  }
}

}  // namespace stream_any_input_test
