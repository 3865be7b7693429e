// What waits at an owner for the last rank, however large the tensor is, and however many the
// ranks.
#include <array>

#include "proto/stream/owner/owner.hpp"
#include "stream_benches.hpp"

namespace owner_memory_test {

using namespace sparsewire;
using namespace sparsewire::test;

wire::Topology topology_of_ranks(std::uint32_t ranks, std::uint32_t lanes = 1) {
  return {.world_size = ranks,
          .lanes = lanes,
          .owners = ranks,
          .window_bytes = proto::default_window(ranks, lanes)};
}

// What rank 0's owner holds once all ranks but one have sent all that their windows have room for.
class LateRank {
 public:
  LateRank(const wire::Topology& topology, const wire::Descriptor& descriptor)
      : topology_(topology),
        descriptor_(descriptor),
        grid_(proto::make_grid(descriptor, topology)),
        chunks_(proto::chunks_of(0, 0, 0, grid_, topology)),
        zeros_(grid_.layout(0).bytes()),
        owner_(topology, 0, 0) {
    const auto late = static_cast<Rank>(topology.world_size - 1);
    REQUIRE_FALSE(owner_.on_message(late, open(0, descriptor_, chunks_.first), outbox_));
    for (Rank rank = 0; rank < late; ++rank) send_all(rank);
    REQUIRE(outbox_.empty());
  }

  std::size_t held() const { return owner_.buffered_bytes(); }

 private:
  void send_all(Rank rank) {
    REQUIRE_FALSE(owner_.on_message(rank, open(0, descriptor_, chunks_.first), outbox_));
    for (std::uint64_t chunk = chunks_.first; chunk != kNoChunk; chunk = chunks_.after(chunk)) {
      const std::span<const std::byte> values(zeros_.data(), grid_.layout(chunk).bytes());
      const wire::Message message = wire::message_of({.kind = FrameKind::segment,
                                                      .format = Format::dense,
                                                      .chunk = chunk,
                                                      .next = chunks_.after(chunk)},
                                                     Bytes::borrowed(values));
      if (owner_.accepts(rank, message.header)) return;  // beyond its window
      REQUIRE_FALSE(owner_.on_message(rank, message, outbox_));
    }
  }

  wire::Topology topology_;
  wire::Descriptor descriptor_;
  proto::ChunkGrid grid_;
  proto::ChunkSequence chunks_;
  Buffer zeros_;
  proto::Owner owner_;
  proto::Owner::Outbox outbox_;
};

std::size_t held_of(std::uint32_t ranks, std::uint64_t elements, DType dtype = kFloat) {
  return LateRank(topology_of_ranks(ranks), {dtype, ReduceOp::sum, elements}).held();
}

TEST_CASE("what waits at an owner of many ranks does not grow with the tensor") {
  for (const std::uint32_t ranks : {64u, 128u, 256u, 384u, 1000u}) {
    CAPTURE(ranks);
    const std::size_t held = held_of(ranks, 25'000'000);
    CHECK(held > proto::kMaxWaitingBytes / 2);
    CHECK(held <= proto::kMaxWaitingBytes);
    CHECK(held_of(ranks, 250'000'000) == held);
    CHECK(held_of(ranks, 25'000'000, DType::float64) <= proto::kMaxWaitingBytes);
    CHECK(held_of(ranks, 25'000'000, DType::bfloat16) <= proto::kMaxWaitingBytes);
  }
}

TEST_CASE("lanes share what may wait") {
  const wire::Topology topology = topology_of_ranks(64, 4);
  const std::size_t held = LateRank(topology, {kFloat, ReduceOp::sum, 100'000'000}).held();
  CHECK(held * topology.lanes <= proto::kMaxWaitingBytes);
}

TEST_CASE("among few ranks chunks are as large as they may be") {
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 4> kFew{
      {{2, 1}, {8, 1}, {8, 4}, {32, 1}}};
  for (const auto& [ranks, lanes] : kFew) {
    CAPTURE(ranks);
    const wire::Descriptor descriptor{kFloat, ReduceOp::sum, 100'000'000};
    const auto grid = proto::make_grid(descriptor, topology_of_ranks(ranks, lanes));
    CHECK(grid.chunk_elements == 65536);
  }
}

TEST_CASE("a small tensor stays in two pieces, up to 256 ranks") {
  const wire::Descriptor descriptor{kFloat, ReduceOp::sum, 8192};
  CHECK(proto::make_grid(descriptor, topology_of_ranks(256)).chunks() == 2);
}

}  // namespace owner_memory_test
