// The deputies of one rank in a job of many hosts: what they hold, and what an operation makes them
// look at, grows with the owners that they stand for, and not with all ranks.
#include <memory>

#include "allocations.hpp"
#include "proto/stream/owner/deputy.hpp"
#include "segments.hpp"
#include "stream_benches.hpp"

namespace deputies_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Deputy;

const std::vector<Rank> kBeside{0, 1, 2, 3, 4, 5, 6, 7};
const wire::Descriptor kDescriptor{kFloat, ReduceOp::sum, 25'000'000};

wire::Topology topology_of_ranks(std::uint32_t ranks) {
  return {.world_size = ranks,
          .lanes = 1,
          .owners = ranks,
          .window_bytes = proto::default_window(ranks, 1)};
}

std::unique_ptr<Deputy> deputy_of(std::uint32_t owner, std::uint32_t ranks,
                                  const std::shared_ptr<proto::Scratch>& scratch) {
  return std::make_unique<Deputy>(topology_of_ranks(ranks), 0, owner, kBeside, scratch);
}

proto::ChunkSequence chunks_for(std::uint32_t owner, std::uint32_t ranks) {
  const wire::Topology topology = topology_of_ranks(ranks);
  return proto::chunks_of(0, owner, 0, proto::make_grid(kDescriptor, topology), topology);
}

void open_all(Deputy& deputy, std::uint32_t owner, std::uint32_t ranks) {
  Deputy::Outbox outbox;
  for (const Rank rank : kBeside) {
    const auto message = open(0, kDescriptor, chunks_for(owner, ranks).first);
    REQUIRE_FALSE(deputy.on_message(rank, message, outbox));
  }
  REQUIRE(outbox.up.empty());
  REQUIRE(outbox.down.empty());
}

// Every rank of the host names some elements of the owner's first chunk, and of no other one.
void add_elements(Deputy& deputy, std::uint32_t owner, std::uint32_t ranks, Random& random) {
  const BlockLayout layout = proto::make_grid(kDescriptor, topology_of_ranks(ranks)).layout(0);
  Deputy::Outbox outbox;
  for (const Rank rank : kBeside) {
    const Buffer payload =
        elements_payload(wire::Format::coordinates, element_bitmap(layout, random), layout);
    const wire::FrameHeader header{.kind = FrameKind::segment,
                                   .format = wire::Format::coordinates,
                                   .chunk = chunks_for(owner, ranks).first,
                                   .next = kNoChunk};
    REQUIRE_FALSE(deputy.on_message(
        rank, wire::message_of(header, Bytes::borrowed(payload).owned()), outbox));
  }
}

TEST_CASE("the deputies of a lane add in one piece of memory, for 125 hosts, too") {
  constexpr std::uint32_t ranks = 1000;
  const auto scratch = std::make_shared<proto::Scratch>();
  Random random(1);
  std::vector<std::unique_ptr<Deputy>> deputies;
  const std::size_t before = Allocations::held();
  for (std::uint32_t owner = 0; owner < ranks; owner += kBeside.size()) {
    deputies.push_back(deputy_of(owner, ranks, scratch));
    open_all(*deputies.back(), owner, ranks);
    add_elements(*deputies.back(), owner, ranks, random);
    CHECK(deputies.back()->has_work());
  }
  CHECK(deputies.size() == 125);
  const std::size_t held = Allocations::held() - before;
  CAPTURE(held);
  CHECK(held < (2u << 20));
}

TEST_CASE("what a deputy is made of does not grow with the ranks of the job") {
  const auto scratch = std::make_shared<proto::Scratch>();
  const auto size_of = [&](std::uint32_t ranks) {
    const std::size_t before = Allocations::held();
    const auto deputy = deputy_of(ranks - 1, ranks, scratch);
    return Allocations::held() - before;
  };
  CHECK(size_of(1000) == size_of(16));
}

TEST_CASE("an operation has a deputy look at its owner's chunks, and at no others") {
  const auto scratch = std::make_shared<proto::Scratch>();
  const auto most_held = [&](std::uint32_t ranks) {
    const auto deputy = deputy_of(ranks - 1, ranks, scratch);
    const std::size_t before = Allocations::held();
    Allocations::forget_peak();
    open_all(*deputy, ranks - 1, ranks);
    return Allocations::peak() - before;
  };
  CHECK(most_held(1000) == most_held(16));
}

}  // namespace deputies_test
