// The stream protocol without sockets or clock: whatever the order in which things happen, every
// rank ends with the bits of the plain reference, and nothing is left behind.
#include <doctest/doctest.h>

#include "simulator.hpp"
#include "tensors.hpp"

namespace stream_test {

using namespace sparsewire;
using namespace sparsewire::test;

struct Shape {
  std::uint32_t world_size;
  std::uint32_t owners;
  std::uint32_t lanes;
  bool dedicated;
};

wire::Topology topology_of(const Shape& shape, std::uint32_t block, std::uint32_t window) {
  return {.world_size = shape.world_size,
          .lanes = shape.lanes,
          .owners = shape.owners,
          .block = block,
          .window_bytes = window};
}

// Windows smaller than the wire allows force stalls; from kOpenCost + 1 on they must work.
std::uint32_t random_window(Random& random) {
  return pick<std::uint32_t>({65, 1000, 40'000, 1u << 22}, random);
}

// Around the bounds of chunks, which have 8192 elements where the tensor is as small as here.
std::uint64_t random_count(Random& random) {
  return pick<std::uint64_t>({0, 1, 100, 8191, 8192, 8193, 3 * 8192 + below(20'000, random)},
                             random);
}

wire::Descriptor random_descriptor(Random& random) {
  return {pick(kDTypes, random), pick(kOps, random), random_count(random)};
}

Simulator::MakeEnds dense_ends(const wire::Descriptor& descriptor, RankTensor& tensor) {
  return [descriptor, &tensor](const proto::ChunkGrid& grid) -> Simulator::Ends {
    const proto::DenseTensor dense{tensor.source(), tensor.out(), descriptor, grid};
    return {source_of(dense), std::make_unique<proto::DenseSink>(dense)};
  };
}

void submit_all(Simulator& simulator, Collective& collective) {
  for (std::size_t rank = 0; rank < collective.ranks.size(); ++rank) {
    simulator.will_submit(static_cast<Rank>(rank), collective.descriptor,
                          dense_ends(collective.descriptor, collective.ranks[rank]));
  }
}

void check_result(Simulator& simulator, const Collective& collective, std::uint64_t seq) {
  CAPTURE(seq);
  CAPTURE(wire::describe(collective.descriptor));
  for (std::size_t rank = 0; rank < collective.ranks.size(); ++rank) {
    CAPTURE(rank);
    REQUIRE(simulator.ended(static_cast<Rank>(rank), seq));
    REQUIRE_FALSE(simulator.failure(static_cast<Rank>(rank), seq));
    REQUIRE((collective.ranks[rank].result() == collective.expected));
    REQUIRE(collective.ranks[rank].source_is_untouched());
  }
}

// --- What may be sent: a segment per rank and non-empty chunk, a result per chunk of the union.
// ---

struct Traffic {
  std::uint64_t segments = 0;
  std::uint64_t results = 0;
  std::vector<std::uint64_t> chunks_empty;  // per rank
};

std::set<std::uint64_t> chunks_sent(const Collective& collective, const RankTensor& tensor,
                                    const proto::ChunkGrid& grid) {
  const bool scans =
      proto::leaves_out_zeros({tensor.input().data(), nullptr, collective.descriptor, grid});
  std::set<std::uint64_t> chunks;
  for (std::uint64_t chunk = 0; chunk < grid.chunks() && grid.count != 0; ++chunk) {
    const std::size_t first = chunk * grid.chunk_elements;
    const bool is_empty = scans && is_zero(tensor.input(), first, first + grid.layout(chunk).count,
                                           collective.descriptor.dtype);
    if (!is_empty) chunks.insert(chunk);
  }
  return chunks;
}

void add_traffic(Traffic& traffic, const Collective& collective, std::uint64_t seq,
                 const wire::Topology& topology) {
  const proto::ChunkGrid grid = proto::make_grid(collective.descriptor, topology);
  traffic.chunks_empty.resize(topology.world_size);
  std::set<std::uint64_t> all;
  for (std::size_t rank = 0; rank < collective.ranks.size(); ++rank) {
    const auto sent = chunks_sent(collective, collective.ranks[rank], grid);
    all.insert(sent.begin(), sent.end());
    traffic.segments += sent.size();
    if (grid.count != 0) traffic.chunks_empty[rank] += grid.chunks() - sent.size();
  }
  traffic.results += all.size();
  for (std::uint32_t lane = 0; lane < topology.lanes; ++lane) {
    for (std::uint32_t owner = 0; owner < topology.owners; ++owner) {
      const auto chunks = proto::chunks_of(lane, owner, seq, grid, topology);
      const bool is_silent =
          std::ranges::none_of(all, [&](std::uint64_t chunk) { return chunks.contains(chunk); });
      traffic.results += !chunks.empty() && is_silent;  // It must say that there is nothing.
    }
  }
}

void check_traffic(const Simulator& simulator, const Traffic& traffic) {
  CHECK(simulator.counters().segments_sent == traffic.segments);
  CHECK(simulator.counters().results_made == traffic.results);
  for (std::size_t rank = 0; rank < traffic.chunks_empty.size(); ++rank) {
    CHECK(simulator.chunks_empty(static_cast<Rank>(rank)) == traffic.chunks_empty[rank]);
  }
}

// --- Scenarios ---

void check_random_collectives(const Shape& shape, std::uint64_t seed) {
  CAPTURE(shape.world_size);
  CAPTURE(shape.owners);
  CAPTURE(shape.lanes);
  CAPTURE(shape.dedicated);
  CAPTURE(seed);
  Random random(seed);
  const wire::Topology topology =
      topology_of(shape, 16u << below(9, random), random_window(random));
  std::vector<Collective> collectives;
  Traffic traffic;
  const std::size_t operations = 1 + below(5, random);
  for (std::uint64_t seq = 0; seq < operations; ++seq) {
    collectives.push_back(random_collective(random_descriptor(random), shape.world_size,
                                            topology.block, pick(kDensities, random), random));
    add_traffic(traffic, collectives.back(), seq, topology);
  }

  Simulator simulator(topology, shape.dedicated, seed);
  for (Collective& collective : collectives) submit_all(simulator, collective);
  simulator.run();
  for (std::uint64_t seq = 0; seq < operations; ++seq) {
    check_result(simulator, collectives[seq], seq);
  }
  simulator.check_nothing_left();
  check_traffic(simulator, traffic);
}

template <typename Visit>
void for_each_shape(Visit visit) {
  for (const std::uint32_t world_size : {1u, 2u, 3u, 4u, 7u}) {
    for (const std::uint32_t lanes : {1u, 2u, 3u}) {
      visit(Shape{world_size, world_size, lanes, false});
      visit(Shape{world_size, 1, lanes, true});
      visit(Shape{world_size, 3, lanes, true});
    }
  }
}

TEST_CASE("random collectives in random order, in every shape of world") {
  std::uint64_t seed = 0;
  for_each_shape([&](const Shape& shape) {
    for (int repeat = 0; repeat < 8; ++repeat) check_random_collectives(shape, ++seed);
  });
}

TEST_CASE("every element type and operation, at every density") {
  Random random(1000);
  const wire::Topology topology = topology_of({3, 3, 2, false}, 256, 40'000);
  std::uint64_t seed = 0;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const Density density : kDensities) {
        CAPTURE(++seed);
        Collective collective = random_collective({dtype, op, 8193}, 3, 256, density, random);
        Simulator simulator(topology, false, seed);
        submit_all(simulator, collective);
        simulator.run();
        check_result(simulator, collective, 0);
        simulator.check_nothing_left();
      }
    }
  }
}

TEST_CASE("chunks of full size") {
  Random random(2000);
  const Shape shape{2, 1, 1, true};
  const wire::Topology topology = topology_of(shape, 256, 1u << 20);
  for (const std::uint64_t count : {16 * 65536u - 1, 16 * 65536u, 16 * 65536u + 1}) {
    CAPTURE(count);
    const wire::Descriptor descriptor{DType::bfloat16, ReduceOp::sum, count};
    CHECK(proto::make_grid(descriptor, topology).chunk_elements == 65536);
    Collective collective = random_collective(descriptor, 2, 256, {0.1}, random);
    Simulator simulator(topology, true, count);
    submit_all(simulator, collective);
    simulator.run();
    check_result(simulator, collective, 0);
    simulator.check_nothing_left();
  }
}

TEST_CASE("chunks shrink until every owner has one, and further only where a pipeline pays") {
  const wire::Topology topology = topology_of({4, 4, 1, true}, 256, 1u << 20);
  const auto chunk_elements = [&](std::uint64_t count) {
    return proto::make_grid({DType::float32, ReduceOp::sum, count}, topology).chunk_elements;
  };
  CHECK(chunk_elements(4 * 8 * 65536) == 65536);
  CHECK(chunk_elements(4 * 8 * 16384) == 16384);
  CHECK(chunk_elements(4 * 8192) == 8192);
  CHECK(chunk_elements(4 * 5120) == 5120);
  CHECK(chunk_elements(4 * 4096) == 4096);
  CHECK(chunk_elements(4096) == 4096);
}

TEST_CASE("of many owners only those that have chunks hear of an operation") {
  for (const std::uint32_t n : {64u, 100u, 256u}) {
    for (const std::uint64_t count : {1u, 1024u, 8192u, 3 * 8192u}) {
      CAPTURE(n);
      CAPTURE(count);
      Random random(n + count);
      const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, count};
      Collective collective = random_collective(descriptor, n, 256, {1}, random);
      Simulator simulator(topology_of({n, n, 1, false}, 256, 1u << 20), false, n);
      submit_all(simulator, collective);
      simulator.run();
      check_result(simulator, collective, 0);
      simulator.check_nothing_left();
      // Of every other rank an open and, if it has anything but zeros, a segment; and a result to
      // it.
      const std::uint64_t chunks = ceil_div(count, std::uint64_t{4096});
      REQUIRE(simulator.counters().of_owner.size() == chunks);
      for (const auto& [owner, frames] : simulator.counters().of_owner) {
        CHECK(owner < chunks);
        CHECK(frames >= 2 * (n - 1));
        CHECK(frames <= 3 * (n - 1));
      }
    }
  }
}

std::vector<std::uint32_t> owners_with_work(proto::Worker& worker, std::uint32_t owners) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t owner = worker.next_with_work(0); owner < owners;
       owner = worker.next_with_work(owner + 1)) {
    found.push_back(owner);
  }
  return found;
}

TEST_CASE("of many owners a worker names only those that it has something for") {
  constexpr std::uint32_t n = 256;
  using Owners = std::vector<std::uint32_t>;
  const wire::Topology topology = topology_of({n, n, 1, false}, 256, 1u << 16);
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, 3 * 4096};
  const proto::ChunkGrid grid = proto::make_grid(descriptor, topology);
  RankTensor tensor(Buffer(descriptor.count * 4, std::byte{1}), true);
  const proto::DenseTensor dense{tensor.source(), tensor.out(), descriptor, grid};
  proto::Worker worker(topology, 0);
  CHECK(owners_with_work(worker, n).empty());
  const auto submit = [&](std::uint64_t seq) {
    REQUIRE(worker.submit(seq, descriptor, grid, source_of(dense),
                          std::make_unique<proto::DenseSink>(dense)));
  };
  submit(254);
  CHECK(owners_with_work(worker, n) == Owners{0, 254, 255});
  for (const std::uint32_t owner : {0u, 254u, 255u}) {
    while (worker.has_work(owner)) REQUIRE(worker.poll(owner));
  }
  CHECK(owners_with_work(worker, n).empty());
  submit(255);
  CHECK(owners_with_work(worker, n) == Owners{0, 1, 255});
  worker.drop(254);
  worker.drop(255);
  CHECK(owners_with_work(worker, n).empty());
}

TEST_CASE("small operations take turns among all owners") {
  constexpr std::uint32_t n = 33;
  Random random(1);
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, 16};
  std::deque<Collective> collectives;
  Simulator simulator(topology_of({n, n, 1, false}, 256, 1u << 20), false, 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    collectives.push_back(random_collective(descriptor, n, 256, {1}, random));
    submit_all(simulator, collectives.back());
  }
  simulator.run();
  REQUIRE(simulator.counters().of_owner.size() == n);
  for (const auto& [owner, frames] : simulator.counters().of_owner) CHECK(frames == 3 * (n - 1));
}

TEST_CASE("a small window stalls the ranks but nothing stops") {
  Random random(3000);
  const wire::Topology topology = topology_of({4, 4, 1, false}, 64, 65);
  std::vector<Collective> collectives;
  for (int i = 0; i < 20; ++i) {
    const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, below(40'000, random)};
    collectives.push_back(random_collective(descriptor, 4, 64, {0.5}, random));
  }
  Simulator simulator(topology, false, 1);
  for (Collective& collective : collectives) submit_all(simulator, collective);
  simulator.run();
  for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
    check_result(simulator, collectives[seq], seq);
  }
  simulator.check_nothing_left();
  CHECK(simulator.counters().polls_stalled > 0);
}

// --- Ranks that disagree ---

wire::Descriptor another_than(const wire::Descriptor& descriptor, Random& random) {
  while (true) {
    wire::Descriptor other = descriptor;
    switch (below(3, random)) {
      case 0:
        other.count = random_count(random);
        break;
      case 1:
        other.dtype = pick(kDTypes, random);
        break;
      default:
        other.op = pick(kOps, random);
    }
    if (other != descriptor) return other;
  }
}

// Some operation in the middle that at least one rank calls in its own way.
void check_mismatch(const Shape& shape, std::uint64_t seed) {
  CAPTURE(shape.world_size);
  CAPTURE(shape.owners);
  CAPTURE(shape.lanes);
  CAPTURE(shape.dedicated);
  CAPTURE(seed);
  Random random(seed);
  const wire::Topology topology = topology_of(shape, 256, random_window(random));
  Simulator simulator(topology, shape.dedicated, seed);
  const auto collective = [&](const wire::Descriptor& descriptor) {
    return random_collective(descriptor, shape.world_size, 256, pick(kDensities, random), random);
  };
  std::vector<Collective> before_and_after;
  for (int i = 0; i < 3; ++i) before_and_after.push_back(collective(random_descriptor(random)));
  const wire::Descriptor descriptor = random_descriptor(random);
  Collective usual = collective(descriptor);
  Collective odd = collective(another_than(descriptor, random));
  const std::size_t odd_one = below(shape.world_size, random);

  submit_all(simulator, before_and_after[0]);
  for (std::size_t rank = 0; rank < shape.world_size; ++rank) {
    Collective& called = rank == odd_one ? odd : usual;
    simulator.will_submit(static_cast<Rank>(rank), called.descriptor,
                          dense_ends(called.descriptor, called.ranks[rank]));
  }
  submit_all(simulator, before_and_after[1]);
  submit_all(simulator, before_and_after[2]);
  simulator.run();

  check_result(simulator, before_and_after[0], 0);
  for (std::size_t rank = 0; rank < shape.world_size; ++rank) {
    REQUIRE(simulator.ended(static_cast<Rank>(rank), 1));
    const Status& failure = simulator.failure(static_cast<Rank>(rank), 1);
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::mismatch);
    CHECK(failure->message.find("rank " + std::to_string(odd_one) + " called " +
                                wire::describe(odd.descriptor)) != std::string::npos);
  }
  check_result(simulator, before_and_after[1], 2);
  check_result(simulator, before_and_after[2], 3);
  simulator.check_nothing_left();
}

TEST_CASE("where many ranks disagree, only owners that have chunks hear of it") {
  constexpr std::uint32_t n = 40;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Collective usual = random_collective({DType::float32, ReduceOp::sum, 16}, n, 256, {1}, random);
    Collective odd = random_collective({DType::float32, ReduceOp::sum, 17}, n, 256, {1}, random);
    const std::size_t odd_one = below(n, random);
    Simulator simulator(topology_of({n, n, 1, false}, 256, 1u << 20), false, seed);
    for (std::size_t rank = 0; rank < n; ++rank) {
      Collective& called = rank == odd_one ? odd : usual;
      simulator.will_submit(static_cast<Rank>(rank), called.descriptor,
                            dense_ends(called.descriptor, called.ranks[rank]));
    }
    simulator.run();
    for (Rank rank = 0; rank < static_cast<Rank>(n); ++rank) {
      REQUIRE(simulator.ended(rank, 0));
      REQUIRE(simulator.failure(rank, 0));
    }
    simulator.check_nothing_left();
    // Of every other rank an open, a segment and a cancel, and word of the failure to it; some
    // ranks come when others have cancelled already.
    REQUIRE(simulator.counters().of_owner.size() == 1);
    CHECK(simulator.counters().of_owner.at(0) <= 4 * (n - 1));
  }
}

TEST_CASE("ranks that disagree all learn of it, and later operations work") {
  std::uint64_t seed = 0;
  for_each_shape([&](const Shape& shape) {
    for (int repeat = 0; repeat < 5 && shape.world_size > 1; ++repeat) {
      check_mismatch(shape, ++seed);
    }
  });
}

}  // namespace stream_test
