// Sparse vectors, and values in codecs, through the stream protocol without sockets or clock:
// whatever the order in which things happen, every rank ends with the same, and what it should.
#include <doctest/doctest.h>

#include "codecs.hpp"
#include "proto/sparse/splitter.hpp"
#include "proto/stream/source.hpp"
#include "simulator.hpp"
#include "sparse_collectives.hpp"

namespace sparse_stream_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Call;

// All lanes of a rank write to one sink.
class SharedSink final : public proto::Sink {
 public:
  explicit SharedSink(proto::Sink& sink) : sink_(sink) {}

  std::byte* place(std::uint64_t chunk, std::size_t size) override {
    return sink_.place(chunk, size);
  }
  Status write(std::uint64_t chunk, const proto::Segment& segment) override {
    return sink_.write(chunk, segment);
  }

 private:
  proto::Sink& sink_;
};

// In these tests every lane splits the whole vector; it is asked for its own chunks alone.
std::unique_ptr<proto::Source> source_of(const SparseVector& vector, const proto::ChunkGrid& grid,
                                         Rank rank, std::uint64_t seq) {
  const wire::Descriptor& descriptor = vector.descriptor();
  auto source = std::make_unique<proto::SparseSource>(vector.tensor(), grid,
                                                      [](std::uint64_t) { return true; });
  if (descriptor.segment_codec == Codec::raw) return source;
  return std::make_unique<proto::EncodedSource>(std::move(source), descriptor, grid, seq, rank);
}

struct World {
  wire::Topology topology;
  bool dedicated;
};

World random_world(Random& random) {
  const auto world_size = static_cast<std::uint32_t>(1 + below(5, random));
  const bool dedicated = one_in(2, random);
  return {{.world_size = world_size,
           .lanes = pick({1u, 2u, 3u}, random),
           .owners = dedicated ? pick({1u, 3u}, random) : world_size,
           .block = pick({16u, 256u}, random),
           .window_bytes = pick({65u, 40'000u, 1u << 20}, random)},
          dedicated};
}

void submit_all(Simulator& simulator, const World& world, SparseCollective& collective,
                std::uint64_t seq) {
  const wire::Descriptor& descriptor = collective.descriptor();
  const proto::ChunkGrid grid = proto::make_grid(descriptor, world.topology);
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    proto::Sink* const sink = collective.outputs(rank).open({{descriptor.count, grid}}).front();
    simulator.will_submit(
        static_cast<Rank>(rank), descriptor,
        [&collective, sink, rank, seq](const proto::ChunkGrid& cut) -> Simulator::Ends {
          return {source_of(collective.vector(rank), cut, static_cast<Rank>(rank), seq),
                  std::make_unique<SharedSink>(*sink)};
        });
  }
}

SparseCollective random_call(std::size_t world_size, bool is_lossy, Random& random) {
  const DType dtype = is_lossy ? DType::float32 : pick(kDTypes, random);
  const std::uint32_t row = pick({1u, 1u, 16u, 300u}, random);
  const std::uint64_t length =
      pick<std::uint64_t>({0, 1, 500, below(200'000, random)}, random) / row;
  Call call{.descriptor = sparse_descriptor(dtype, length, row, random)};
  call.descriptor.form = static_cast<wire::ResultForm>(below(wire::kResultFormCount, random));
  if (is_lossy) {
    call.descriptor.segment_codec = pick(kCodecs, random);
    call.descriptor.result_codec = pick(kCodecs, random);
  }
  const std::uint64_t named = pick<std::uint64_t>({3, length / 50, length / 3, length}, random);
  return sparse_collective(call, world_size, named, random, [&](std::size_t count) {
    return is_lossy ? random_normals(count, random) : random_elements(count, dtype, random);
  });
}

void check_all_ended(Simulator& simulator, std::size_t world_size, std::uint64_t seq) {
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    REQUIRE(simulator.ended(static_cast<Rank>(rank), seq));
    REQUIRE_FALSE(simulator.failure(static_cast<Rank>(rank), seq));
  }
  simulator.check_nothing_left();
}

TEST_CASE("sparse vectors add up in the order of the ranks, to the last bit") {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const World world = random_world(random);
    const std::size_t n = world.topology.world_size;
    std::deque<SparseCollective> collectives;
    Simulator simulator(world.topology, world.dedicated, seed);
    for (std::uint64_t seq = 0; seq < 1 + seed % 3; ++seq) {
      collectives.push_back(random_call(n, false, random));
      submit_all(simulator, world, collectives.back(), seq);
    }
    simulator.run();
    for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
      CAPTURE(wire::describe(collectives[seq].descriptor()));
      check_all_ended(simulator, n, seq);
      for (std::size_t rank = 0; rank < n; ++rank) {
        REQUIRE(same(collectives[seq].results(rank), collectives[seq].expected(rank)));
      }
    }
  }
}

// --- Codecs ---

float largest_of(const std::vector<Buffer>& arrays) {
  float largest = 0;
  for (const Buffer& array : arrays) {
    for (std::size_t i = 0; i < array.size() / sizeof(float); ++i) {
      largest = std::max(largest, std::fabs(load<float>(array.data(), i)));
    }
  }
  return largest;
}

// What one encoding may change, as a share of the largest value.
float step_of(Codec codec) {
  if (codec == Codec::raw) return 0;
  if (!is_stochastic(codec)) return codec == Codec::bfloat16 ? 1.0f / 256 : 1.0f / 2048;
  return 1 / levels_of(codec);
}

TEST_CASE("with codecs all ranks get the same, within the bound, in every order of delivery") {
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    CAPTURE(seed);
    std::vector<Results> before;
    for (const std::uint64_t order : {seed, seed + 1'000'000}) {
      Random random(seed);
      const World world = random_world(random);
      const std::size_t n = world.topology.world_size;
      SparseCollective collective = random_call(n, true, random);
      const wire::Descriptor& descriptor = collective.descriptor();
      CAPTURE(wire::describe(descriptor));
      Simulator simulator(world.topology, world.dedicated, order);
      submit_all(simulator, world, collective, 0);
      simulator.run();
      check_all_ended(simulator, n, 0);
      std::vector<Results> results;
      for (std::size_t rank = 0; rank < n; ++rank) results.push_back(collective.results(rank));
      for (const Results& result : results) REQUIRE((result == results.front()));
      if (!before.empty()) REQUIRE((before == results));
      before = results;

      std::vector<Buffer> inputs;
      for (std::size_t rank = 0; rank < n; ++rank) {
        inputs.push_back(collective.vector(rank).dense());
      }
      const auto terms = static_cast<float>(descriptor.op == ReduceOp::avg ? 1 : n);
      const float bound =
          largest_of(inputs) * terms *
              (step_of(descriptor.segment_codec) + step_of(descriptor.result_codec)) +
          1e-4f;
      const Buffer wanted = collective.expected(0).front();
      const Buffer& got = results.front().front();
      for (std::size_t i = 0; i < descriptor.count; ++i) {
        const float error = std::fabs(load<float>(got.data(), i) - load<float>(wanted.data(), i));
        if (error > bound) FAIL("element " << i << " is off by " << error);
      }
    }
  }
}

}  // namespace sparse_stream_test
