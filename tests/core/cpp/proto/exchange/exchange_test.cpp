// Sparse collectives between workers, in virtual time: whatever the order in which things happen,
// every rank ends with the values of the plain reference, and all with the same bits.
#include <doctest/doctest.h>

#include "codecs.hpp"
#include "peer_world.hpp"
#include "sparse_collectives.hpp"

namespace exchange_test {

using namespace sparsewire;
using namespace sparsewire::test;
using wire::Algorithm;
using wire::Call;
using wire::Collective;
using wire::Descriptor;

// Around the bounds of blocks, chunks, and parts, which have 16 chunks.
std::uint64_t random_length(std::size_t world_size, std::uint32_t row, Random& random) {
  const std::uint64_t parts = world_size < 4 ? 1'100'000 : 3000;
  return pick<std::uint64_t>({0, 1, 7, 700, 65'536 / row, 65'537 / row + 1, 7 * (30'000 / row),
                              parts / row, below(150'000, random) / row},
                             random);
}

std::uint64_t random_named(std::uint64_t length, Random& random) {
  return pick<std::uint64_t>(
      {3, 1000, length / 100, length / 10, std::min<std::uint64_t>(length, 70'000)}, random);
}

Call random_call(std::size_t world_size, DType dtype, Random& random) {
  const std::uint32_t row = pick({1u, 1u, 1u, 16u, 300u}, random);
  return random_sparse_call(
      sparse_descriptor(dtype, random_length(world_size, row, random), row, random), world_size,
      random);
}

void submit_all(PeerWorld& world, SparseCollective& collective) {
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    world.will_submit(static_cast<Rank>(rank), collective.call(), collective.vector(rank).tensor(),
                      collective.outputs(rank));
  }
}

void check_ended(PeerWorld& world, const SparseCollective& collective, std::uint64_t seq) {
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    CAPTURE(rank);
    const Status failure = world.failure(static_cast<Rank>(rank), seq);
    REQUIRE_MESSAGE(!failure, (failure ? failure->message : ""));
    REQUIRE(world.has_ended(static_cast<Rank>(rank), seq));
  }
}

void check_results(PeerWorld& world, const SparseCollective& collective, std::uint64_t seq) {
  CAPTURE(seq);
  CAPTURE(wire::describe(collective.call()));
  check_ended(world, collective, seq);
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    CAPTURE(rank);
    REQUIRE(same(collective.results(rank), collective.expected(rank)));
  }
}

// Every rank on a host of its own, or some of them together.
proto::Hosts random_hosts(std::size_t world_size, Random& random) {
  if (one_in(2, random)) return {};
  std::vector<std::uint32_t> host_of(world_size);
  for (std::uint32_t& host : host_of) host = static_cast<std::uint32_t>(below(3, random));
  return proto::Hosts(host_of);
}

// Several operations in flight; small numbers, whose sums are the same in any order.
void check_random_collectives(Rank world_size, std::uint64_t seed) {
  CAPTURE(world_size);
  CAPTURE(seed);
  Random random(seed);
  const auto n = static_cast<std::size_t>(world_size);
  std::deque<SparseCollective> collectives;
  for (std::uint64_t left = 1 + below(4, random); left != 0; --left) {
    const DType dtype = pick(kDTypes, random);
    const Call call = random_call(n, dtype, random);
    const std::uint64_t length = call.descriptor.count / call.descriptor.row;
    collectives.push_back(sparse_collective(
        call, n, random_named(length, random), random,
        [&](std::size_t count) { return random_small_numbers(count, dtype, random); }));
  }
  PeerWorld world(world_size, seed, random_hosts(n, random), pick({1u, 2u, 3u}, random));
  for (SparseCollective& collective : collectives) submit_all(world, collective);
  if (one_in(3, random)) world.set_late(static_cast<Rank>(below(n, random)));
  world.run();
  for (std::uint64_t seq = 0; seq < collectives.size(); ++seq) {
    check_results(world, collectives[seq], seq);
  }
  world.check_nothing_left();
}

TEST_CASE("random collectives in random order, in worlds of every size") {
  std::uint64_t seed = 0;
  for (Rank world_size = 1; world_size <= 9; ++world_size) {
    for (int repeat = 0; repeat < 8; ++repeat) check_random_collectives(world_size, ++seed);
  }
}

TEST_CASE("large vectors go over all lanes, in every order of delivery") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto lanes = static_cast<std::uint32_t>(2 + below(2, random));
    Call call{.descriptor = {.count = 500'000, .is_sparse = true},
              .collective = pick(kCollectives, random)};
    call.algorithm = pick({Algorithm::allgather, Algorithm::ssar_split_allgather}, random);
    auto collective = sparse_collective(call, 3, 80'000, random, [&](std::size_t count) {
      return random_small_numbers(count, DType::float32, random);
    });
    PeerWorld world(3, seed, random_hosts(3, random), lanes);
    submit_all(world, collective);
    if (one_in(2, random)) world.set_late(static_cast<Rank>(below(3, random)));
    world.run();
    check_results(world, collective, 0);
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      most = std::max(most, collective.vector(rank).elements());
    }
    const bool has_parts = call.collective == Collective::all_gather ||
                           (call.collective == Collective::all_reduce &&
                            call.algorithm == Algorithm::ssar_split_allgather);
    if (has_parts) CHECK((world.counters().on_other_lanes > 0) == (most >= 32'768));
    world.check_nothing_left();
  }
}

TEST_CASE("every collective, algorithm and element type") {
  std::uint64_t seed = 1000;
  for (const DType dtype : kDTypes) {
    for (const Collective collective : kCollectives) {
      for (const Algorithm algorithm : kExchanges) {
        for (const std::uint32_t row : {1u, 32u}) {
          CAPTURE(++seed);
          Random random(seed);
          const Rank n = 2 + static_cast<Rank>(below(4, random));
          Call call{.descriptor = sparse_descriptor(dtype, 70'000 / row, row, random),
                    .collective = collective,
                    .algorithm = algorithm};
          auto vectors = sparse_collective(
              call, static_cast<std::size_t>(n), pick({50u, 4000u, 50'000u}, random), random,
              [&](std::size_t count) { return random_small_numbers(count, dtype, random); });
          PeerWorld world(n, seed, random_hosts(static_cast<std::size_t>(n), random));
          submit_all(world, vectors);
          world.run();
          check_results(world, vectors, 0);
          world.check_nothing_left();
        }
      }
    }
  }
}

// --- Sums that are rounded ---

std::vector<Results> play(const SparseCollective& collective, std::uint64_t seed,
                          const proto::Hosts& hosts = {}) {
  std::vector<SparseVector> vectors;
  for (std::size_t rank = 0; rank < collective.world_size(); ++rank) {
    vectors.push_back(collective.vector(rank));
  }
  SparseCollective own(collective.call(), std::move(vectors));
  PeerWorld world(static_cast<Rank>(own.world_size()), seed, hosts);
  submit_all(world, own);
  world.run();
  check_ended(world, own, 0);
  std::vector<Results> results;
  for (std::size_t rank = 0; rank < own.world_size(); ++rank) results.push_back(own.results(rank));
  return results;
}

// Whether all ranks that get everything have got the same.
void check_alike(const SparseCollective& collective, const std::vector<Results>& results) {
  const Collective what = collective.call().collective;
  if (what == Collective::reduce || what == Collective::reduce_scatter) return;
  for (std::size_t rank = 1; rank < results.size(); ++rank) {
    CAPTURE(rank);
    REQUIRE(same(results[rank], results[0]));
  }
}

TEST_CASE("any values: the same bits on every rank and in every order of delivery") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t n = 1 + below(9, random);
    const DType dtype = pick(kDTypes, random);
    const Call call = random_call(n, dtype, random);
    CAPTURE(wire::describe(call));
    const std::uint64_t length = call.descriptor.count / call.descriptor.row;
    const auto collective = sparse_collective(
        call, n, std::min<std::uint64_t>(random_named(length, random), 20'000), random,
        [&](std::size_t count) { return random_elements(count, dtype, random); });
    const proto::Hosts hosts = random_hosts(n, random);
    const std::vector<Results> results = play(collective, seed, hosts);
    check_alike(collective, results);
    REQUIRE(std::ranges::equal(play(collective, seed + 1'000'000, hosts), results,
                               [](const Results& a, const Results& b) { return same(a, b); }));
  }
}

TEST_CASE("an allgather adds in the order of the ranks, from zero on") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t n = 1 + below(9, random);
    const DType dtype = pick(kDTypes, random);
    Call call = random_call(n, dtype, random);
    call.collective = pick({Collective::all_reduce, Collective::reduce}, random);
    call.unit = 1;
    call.algorithm = Algorithm::allgather;
    CAPTURE(wire::describe(call));
    const std::uint64_t length = call.descriptor.count / call.descriptor.row;
    const auto collective = sparse_collective(
        call, n, std::min<std::uint64_t>(random_named(length, random), 20'000), random,
        [&](std::size_t count) { return random_elements(count, dtype, random); });
    const std::vector<Results> results = play(collective, seed);
    for (std::size_t rank = 0; rank < n; ++rank) {
      REQUIRE(same(results[rank], collective.expected(rank)));
    }
  }
}

// --- Codecs ---

// What one encoding may change of a value that is at most 1, as a share of that.
double step_of(Codec codec) {
  constexpr double steps[kCodecCount] = {0, 1.0 / 256, 1.0 / 2048, 1.0 / 127, 1.0 / 7, 1};
  return steps[static_cast<std::size_t>(codec)];
}

// How far a sum of values of at most 1 may be off. Partial sums are at most as large as the number
// of their terms, and an error at most a step of the largest.
double bound_of(const Call& call, double ranks) {
  const double segment = step_of(call.descriptor.segment_codec);
  const double result = step_of(call.descriptor.result_codec);
  const bool averages = call.descriptor.op == ReduceOp::avg;
  double bound = ranks * segment + ranks * result;
  if (call.collective == Collective::all_reduce && call.algorithm == Algorithm::ring) {
    bound = ranks * (ranks - 1) / 2 * segment + ranks * result;
  }
  if (call.collective == Collective::all_reduce &&
      call.algorithm == Algorithm::ssar_recursive_double) {
    bound = std::ceil(std::log2(ranks)) * ranks * segment;
  }
  if (call.collective == Collective::broadcast || call.collective == Collective::all_gather) {
    return segment + 1e-5;
  }
  return (averages ? bound / ranks : bound) + 1e-4;
}

double largest_error(const Results& results, const Results& expected) {
  double largest = 0;
  REQUIRE(results.size() == expected.size());
  for (std::size_t list = 0; list < results.size(); ++list) {
    REQUIRE(results[list].size() == expected[list].size());
    for (std::size_t i = 0; i < results[list].size() / sizeof(float); ++i) {
      const double error = static_cast<double>(load<float>(results[list].data(), i)) -
                           static_cast<double>(load<float>(expected[list].data(), i));
      largest = std::max(largest, std::fabs(error));
    }
  }
  return largest;
}

Buffer values_up_to_one(std::size_t count, Random& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  Buffer data(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) store(data.data(), i, uniform(random));
  return data;
}

TEST_CASE("with codecs all ranks get the same, within the bound, in every order of delivery") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t n = 2 + below(8, random);
    Call call = random_call(n, DType::float32, random);
    call.descriptor.segment_codec = pick(kCodecs, random);
    call.descriptor.result_codec = pick(kCodecs, random);
    CAPTURE(wire::describe(call));
    CAPTURE(n);
    const std::uint64_t length = call.descriptor.count / call.descriptor.row;
    const auto collective = sparse_collective(
        call, n, std::min<std::uint64_t>(random_named(length, random), 20'000), random,
        [&](std::size_t count) { return values_up_to_one(count, random); });
    const proto::Hosts hosts = random_hosts(n, random);
    const std::vector<Results> results = play(collective, seed, hosts);
    check_alike(collective, results);
    for (std::size_t rank = 0; rank < n; ++rank) {
      CAPTURE(rank);
      REQUIRE(largest_error(results[rank], collective.expected(rank)) <=
              bound_of(call, static_cast<double>(n)));
    }
    REQUIRE(std::ranges::equal(play(collective, seed + 1'000'000, hosts), results,
                               [](const Results& a, const Results& b) { return same(a, b); }));
  }
}

}  // namespace exchange_test
